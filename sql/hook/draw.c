/*
 * draw.c
 *		dp.draw: one choice of a random walk, a keyed pseudo-random function.
 *
 * SipHash-2-4 (Aumasson and Bernstein 2012) of the walk (8 bytes, little
 * endian) and the step (4 bytes) under a secret key of 16 bytes; the high half
 * of the product with the number of choices is the choice.  Each choice has
 * the same number of hash values but for one, so no probability is off by
 * more than 2^-64.  A function of its arguments alone: nothing that a session
 * can set or seed changes a walk, and a walk is the same in every plan.
 */
#include "postgres.h"

#include "fmgr.h"

#include "compat.h"

#define KEY_BYTES 16

PG_FUNCTION_INFO_V1(dpsql_draw);

typedef struct
{
	uint64		v0;
	uint64		v1;
	uint64		v2;
	uint64		v3;
} State;

static inline uint64
rotate(uint64 x, int bits)
{
	return (x << bits) | (x >> (64 - bits));
}

static inline void
sip_rounds(State *s, int count)
{
	while (count-- > 0)
	{
		s->v0 += s->v1;
		s->v1 = rotate(s->v1, 13) ^ s->v0;
		s->v0 = rotate(s->v0, 32);
		s->v2 += s->v3;
		s->v3 = rotate(s->v3, 16) ^ s->v2;
		s->v0 += s->v3;
		s->v3 = rotate(s->v3, 21) ^ s->v0;
		s->v2 += s->v1;
		s->v1 = rotate(s->v1, 17) ^ s->v2;
		s->v2 = rotate(s->v2, 32);
	}
}

static inline void
sip_word(State *s, uint64 word)
{
	s->v3 ^= word;
	sip_rounds(s, 2);
	s->v0 ^= word;
}

static uint64
read_word(const unsigned char *bytes)
{
	uint64		word = 0;

	for (int i = 7; i >= 0; i--)
		word = (word << 8) | bytes[i];
	return word;
}

/* SipHash-2-4 of twelve bytes. */
static uint64
sip_hash(const unsigned char *key, uint64 walk, uint32 step)
{
	uint64		k0 = read_word(key);
	uint64		k1 = read_word(key + 8);
	State		s = {k0 ^ UINT64CONST(0x736f6d6570736575),
		k1 ^ UINT64CONST(0x646f72616e646f6d),
		k0 ^ UINT64CONST(0x6c7967656e657261),
	k1 ^ UINT64CONST(0x7465646279746573)};

	sip_word(&s, walk);
	sip_word(&s, ((uint64) 12 << 56) | step);
	s.v2 ^= 0xff;
	sip_rounds(&s, 4);
	return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}

/* The high 64 bits of a product. */
static uint64
high_half(uint64 a, uint64 b)
{
#ifdef HAVE_INT128
	return (uint64) (((uint128) a * b) >> 64);
#else
	uint64		low = (a & 0xffffffff) * (b & 0xffffffff);
	uint64		one = (a >> 32) * (b & 0xffffffff) + (low >> 32);
	uint64		two = (a & 0xffffffff) * (b >> 32) + (one & 0xffffffff);

	return (a >> 32) * (b >> 32) + (one >> 32) + (two >> 32);
#endif
}

Datum
dpsql_draw(PG_FUNCTION_ARGS)
{
	bytea	   *key = PG_GETARG_BYTEA_PP(0);
	uint64		walk = (uint64) PG_GETARG_INT64(1);
	uint32		step = (uint32) PG_GETARG_INT32(2);
	int64		choices = PG_GETARG_INT64(3);

	if (VARSIZE_ANY_EXHDR(key) != KEY_BYTES)
		elog(ERROR, "the key of dp.draw must have %d bytes", KEY_BYTES);
	if (choices < 1)
		elog(ERROR, "dp.draw needs something to choose from");
	PG_RETURN_INT64((int64) high_half(sip_hash((unsigned char *) VARDATA_ANY(key), walk, step),
									  (uint64) choices));
}
