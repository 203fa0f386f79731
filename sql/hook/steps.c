/*
 * steps.c
 *		dp.steps(value, digits), dp.steps(value, low, high, digits): a numeric as
 *		an integer; clamped to two others.
 *
 * The value times 10^digits, cut off towards zero, or the nearer of low and
 * high, themselves in such steps, if it lies beyond.  NaN is greater than all
 * others, as PostgreSQL sorts it.  That is what
 *
 *		trunc(least(greatest(value, low), high) * 10 ^ digits)::bigint
 *
 * computes of bounds that are written with a point, and never an error, without
 * arithmetic of numerics: sums of them are what private sums spend their time
 * on.  Without bounds a value that is no integer then is an error, NaN as well.
 *
 * A numeric is read as it lies on disk, which majors have in common because
 * pg_upgrade keeps it: a header of two or four bytes, then digits of base
 * 10000, most significant first.  See src/backend/utils/adt/numeric.c.
 */
#include "postgres.h"

#include "common/int.h"
#include "fmgr.h"
#include "utils/numeric.h"

#include "compat.h"

PG_FUNCTION_INFO_V1(dpsql_steps);
PG_FUNCTION_INFO_V1(dpsql_clamped_steps);

#define BASE 10000
#define BASE_DIGITS 4
/* The two highest bits of the header. */
#define KIND 0xC000
#define KIND_NEGATIVE 0x4000
#define KIND_SHORT 0x8000
#define KIND_SPECIAL 0xC000
#define SPECIAL 0xF000
#define SPECIAL_NEGATIVE_INFINITY 0xF000
/* Of a header of two bytes: sign, and a weight of seven bits with its own. */
#define SHORT_NEGATIVE 0x2000
#define SHORT_WEIGHT_NEGATIVE 0x0040
#define SHORT_WEIGHT 0x003F

static const int64 power[] = {1, 10, 100, 1000, 10000};

/* Append decimal digits to a number; false beyond 64 bits. */
static bool
append(int64 *value, int digits, int64 more)
{
	return !pg_mul_s64_overflow(*value, power[digits], value) &&
		!pg_add_s64_overflow(*value, more, value);
}

/*
 * The magnitude of a number in steps, rounded down, and whether anything was
 * cut off; false beyond 64 bits.
 */
static bool
magnitude(const char *place, int number, int weight, int digits, int64 *value, bool *fraction)
{
	int			exponent = weight * BASE_DIGITS + digits;	/* of the next digit, in steps */

	*value = 0;
	for (int i = 0; i < number; i++, exponent -= BASE_DIGITS)
	{
		int16		digit;

		memcpy(&digit, place + i * sizeof(digit), sizeof(digit));
		if (exponent >= 0)
		{
			if (!append(value, BASE_DIGITS, digit))
				return false;
		}
		else if (exponent > -BASE_DIGITS)
		{
			if (!append(value, BASE_DIGITS + exponent, digit / power[-exponent]))
				return false;
			*fraction = *fraction || digit % power[-exponent] != 0;
		}
		else
			*fraction = *fraction || digit != 0;
	}
	/* Zeros at the end are not written. */
	for (exponent += BASE_DIGITS; *value != 0 && exponent > 0; exponent -= BASE_DIGITS)
	{
		if (!append(value, Min(exponent, BASE_DIGITS), 0))
			return false;
	}
	return true;
}

/* What a numeric is in steps, cut off towards zero, if eight bytes hold that. */
typedef struct
{
	bool		special;		/* NaN or infinite; NaN counts as positive */
	bool		negative;
	bool		fraction;		/* something was cut off */
	bool		fits;
	int64		value;
} Read;

static Read
read_numeric(struct varlena *numeric, int digits)
{
	const char *place = VARDATA_ANY(numeric);
	const char *end = place + VARSIZE_ANY_EXHDR(numeric);
	Read		read = {0};
	uint16		header;
	int16		weight;

	if (digits < 0 || digits > NUMERIC_MAX_DISPLAY_SCALE)
		elog(ERROR, "dp.steps does not take %d digits", digits);
	memcpy(&header, place, sizeof(header));
	place += sizeof(header);
	if ((header & KIND) == KIND_SPECIAL)
	{
		read.special = true;
		read.negative = (header & SPECIAL) == SPECIAL_NEGATIVE_INFINITY;
		return read;
	}
	if ((header & KIND) == KIND_SHORT)
	{
		read.negative = (header & SHORT_NEGATIVE) != 0;
		weight = header & SHORT_WEIGHT;
		if (header & SHORT_WEIGHT_NEGATIVE)
			weight -= SHORT_WEIGHT + 1;
	}
	else
	{
		read.negative = (header & KIND) == KIND_NEGATIVE;
		memcpy(&weight, place, sizeof(weight));
		place += sizeof(weight);
	}
	read.fits = magnitude(place, (end - place) / sizeof(int16), weight, digits, &read.value,
						  &read.fraction);
	if (read.negative)
		read.value = -read.value;
	return read;
}

Datum
dpsql_steps(PG_FUNCTION_ARGS)
{
	int32		digits = PG_GETARG_INT32(1);
	Read		read = read_numeric(PG_GETARG_VARLENA_PP(0), digits);

	if (read.special || read.fraction || !read.fits)
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("dp.steps: a value is no bigint after %d digits", digits)));
	PG_RETURN_INT64(read.value);
}

Datum
dpsql_clamped_steps(PG_FUNCTION_ARGS)
{
	int64		low = PG_GETARG_INT64(1);
	int64		high = PG_GETARG_INT64(2);
	int32		digits = PG_GETARG_INT32(3);
	Read		read = read_numeric(PG_GETARG_VARLENA_PP(0), digits);

	if (low > high)
		elog(ERROR, "dp.steps cannot clamp to these bounds");
	if (read.special || !read.fits)
		PG_RETURN_INT64(read.negative ? low : high);
	PG_RETURN_INT64(Min(Max(read.value, low), high));
}
