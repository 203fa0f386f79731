/*
 * kernel_codes.c
 *		Values to codes, and rows in the order of codes.
 */
#include "kernel.h"

EXPORT int
dpsql_arrays_version(void)
{
	return 1;
}

/* Note which values occur, as distances from the lowest one. */
EXPORT void
dpsql_mark(const void *values, int64_t width, int64_t from, int64_t to, int64_t low, uint8_t *seen)
{
	for (int64_t i = from; i < to; i++)
		seen[value_at(values, width, i) - low] = 1;
}

/* Replace values by codes, by distance from the lowest one (NULL: the distances are the codes). */
EXPORT void
dpsql_translate(const void *values, int64_t width, int64_t from, int64_t to, int64_t low,
				const int32_t *codes, void *result, int64_t result_width)
{
	for (int64_t i = from; i < to; i++)
	{
		int64_t		code = value_at(values, width, i) - low;

		if (codes != NULL)
			code = codes[code];
		if (result_width == 2)
			((int16_t *) result)[i] = (int16_t) code;
		else
			((int32_t *) result)[i] = (int32_t) code;
	}
}

/* Counting sort, first half: how often each code occurs. */
EXPORT void
dpsql_histogram(const void *values, int64_t width, int64_t from, int64_t to, int32_t *counts)
{
	for (int64_t i = from; i < to; i++)
		counts[value_at(values, width, i)]++;
}

/* Counting sort, second half: rows to their places, stable; next[c] is the next place of code c. */
EXPORT void
dpsql_place(const void *values, int64_t width, const int32_t *order, int64_t from, int64_t to,
			int32_t *next, int32_t *result)
{
	for (int64_t i = from; i < to; i++)
	{
		int32_t		row = order == NULL ? (int32_t) i : order[i];

		result[next[value_at(values, width, row)]++] = row;
	}
}
