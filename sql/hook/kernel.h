/*
 * kernel.h
 *		The inner loops of dpsql/statistics on arrays: what its three files share.
 *
 * Plain functions on memory of the caller, found by Python's ctypes in the
 * process that has loaded this library; nothing here calls the server, so
 * nothing here can leave by longjmp.  Each call does a bounded amount of
 * work and says where it stopped; between two calls the caller lets the
 * server notice a cancel.  The layouts are repeated in
 * dpsql/statistics/native.py, and a change of any of them changes
 * dpsql_arrays_version; dpsql/statistics/portable.py does the same slowly.
 *
 * A column is an array of codes or weights of 2, 4 or 8 bytes.  A key is a
 * sum of columns times radices.  All codes are below the sizes that the
 * caller gave its arrays; nothing is checked again here.
 */
#ifndef DPSQL_KERNEL_H
#define DPSQL_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define ALWAYS_INLINE static inline __attribute__((always_inline))

#define MAX_COLUMNS 8

/* What a call ended with. */
enum
{
	DONE,						/* all rows are visited */
	PAUSED,						/* the budget is used up */
	FULL,						/* the output has no room for one more run */
	CROWDED,					/* the hash table must grow */
	OVERFLOWN					/* a count does not fit 63 bits */
};

typedef struct
{
	const void *values;			/* NULL: every value is 1 (weights only) */
	int64_t		width;			/* bytes */
	int64_t		radix;
} Column;

typedef struct
{
	int64_t		number;
	Column		columns[MAX_COLUMNS];
} Key;

/*
 * Left rows and the right rows that they match.
 *
 * Right rows are sorted by bucket, then by rest: bucket b is rows start[b] to
 * start[b + 1].  Without start every left row matches right row 0.
 */
typedef struct
{
	const int32_t *order;		/* left rows as they are visited; NULL: as stored */
	int64_t		rows;
	Key			bucket;			/* of left rows */
	Key			rest;			/* of left rows */
	Column		weight;			/* of left rows */
	const int32_t *start;
	Key			right_rest;
	Column		right_weight;
	int64_t		position;		/* left rows visited */
	int64_t		inside;			/* right rows of the next left row that are done (dpsql_pairs) */
} Match;

/* Counts of pairs by run (of left rows) and key. */
typedef struct
{
	Match		match;
	Key			left_part;		/* the key of a pair is the sum of both parts */
	Key			right_part;
	const int32_t *runs;		/* run r is visited rows runs[r] to runs[r + 1]; NULL: one run */
	int64_t		run;
	int64_t		run_count;
	int64_t		largest;		/* not 0: keep the largest weight of a key instead of the sum */
	int64_t    *sums;			/* by key, or by slot of the hash table */
	int64_t		capacity;		/* of sums; a power of two with a hash table */
	int64_t    *hashed;			/* keys in the hash table, -1 where none; NULL: no hash table */
	int32_t    *touched;		/* which sums are not 0, and one spare place; NULL: not noted */
	int64_t		touched_count;
	int64_t		most;			/* the largest count so far */
	int64_t		needed;			/* CROWDED: sums that the next left row may touch */
	int64_t		room;			/* of the output; 0: only the largest count is wanted */
	int64_t		emitted;
	int32_t    *out_run;
	int64_t    *out_key;
	int64_t    *out_count;
} Count;

/* Left rows that are looked up together: many cache misses at a time instead of one. */
#define BATCH 128

typedef struct
{
	int64_t		begin;			/* the batch is visited rows begin to end */
	int64_t		end;
	int64_t		base[BATCH];	/* the left part of the key (dpsql_count) */
	int64_t		rows[BATCH];
	int64_t		from[BATCH];
	int64_t		to[BATCH];
} Found;

EXPORT int	dpsql_arrays_version(void);
EXPORT void dpsql_mark(const void *values, int64_t width, int64_t from, int64_t to, int64_t low,
					   uint8_t *seen);
EXPORT void dpsql_translate(const void *values, int64_t width, int64_t from, int64_t to, int64_t low,
							const int32_t *codes, void *result, int64_t result_width);
EXPORT void dpsql_histogram(const void *values, int64_t width, int64_t from, int64_t to,
							int32_t *counts);
EXPORT void dpsql_place(const void *values, int64_t width, const int32_t *order, int64_t from,
						int64_t to, int32_t *next, int32_t *result);
EXPORT int	dpsql_pairs(Match *match, int32_t *left, int32_t *right, int64_t room,
						int64_t *written);
EXPORT int	dpsql_count(Count *count, int64_t budget);
EXPORT void dpsql_rehash(Count *count, int64_t *hashed, int64_t *sums, int64_t capacity,
						 int32_t *touched);

/* Look up the next left rows. */
extern __attribute__((visibility("hidden"))) void dpsql_find(const Match *match, Found *found);

ALWAYS_INLINE int64_t
value_at(const void *values, int64_t width, int64_t row)
{
	if (width == 4)
		return ((const int32_t *) values)[row];
	if (width == 2)
		return ((const int16_t *) values)[row];
	return ((const int64_t *) values)[row];
}

ALWAYS_INLINE int64_t
key_at(const Key *key, int64_t row)
{
	int64_t		sum = 0;

	for (int64_t c = 0; c < key->number; c++)
		sum += value_at(key->columns[c].values, key->columns[c].width, row) *
			key->columns[c].radix;
	return sum;
}

ALWAYS_INLINE int64_t
weight_at(const Column *weight, int64_t row)
{
	return weight->values == NULL ? 1 : value_at(weight->values, weight->width, row);
}

/* The keys of some rows. */
ALWAYS_INLINE void
keys_at(const Key *key, const int64_t *rows, int64_t n, int64_t *keys)
{
	memset(keys, 0, sizeof(int64_t) * n);
	for (int64_t c = 0; c < key->number; c++)
	{
		Column		column = key->columns[c];

		for (int64_t i = 0; i < n; i++)
			keys[i] += value_at(column.values, column.width, rows[i]) * column.radix;
	}
}

#endif							/* DPSQL_KERNEL_H */
