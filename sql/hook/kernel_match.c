/*
 * kernel_match.c
 *		Which right rows a left row matches.
 */
#include "kernel.h"

/* The first right row of a bucket whose rest is at least (or, with after, above) a value. */
static int64_t
bound(const Key *rest, int64_t low, int64_t high, int64_t value, bool after)
{
	while (low < high)
	{
		int64_t		middle = (low + high) / 2;
		int64_t		found = key_at(rest, middle);

		if (found < value || (after && found == value))
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* The right rows that the next left rows match. */
void
dpsql_find(const Match *match, Found *found)
{
	int64_t		keys[BATCH];
	int64_t		n = match->rows - match->position;

	n = n < BATCH ? n : BATCH;
	found->begin = match->position;
	found->end = match->position + n;
	for (int64_t i = 0; i < n; i++)
		found->rows[i] = match->order == NULL ? found->begin + i : match->order[found->begin + i];
	if (match->start == NULL)
	{
		for (int64_t i = 0; i < n; i++)
		{
			found->from[i] = 0;
			found->to[i] = 1;
		}
		return;
	}
	keys_at(&match->bucket, found->rows, n, keys);
	for (int64_t i = 0; i < n; i++)
	{
		found->from[i] = match->start[keys[i]];
		found->to[i] = match->start[keys[i] + 1];
	}
	if (match->rest.number == 0)
		return;
	keys_at(&match->rest, found->rows, n, keys);
	for (int64_t i = 0; i < n; i++)
	{
		int64_t		high = found->to[i];
		int64_t		from = bound(&match->right_rest, found->from[i], high, keys[i], false);
		int64_t		to = from;

		while (to < high && to < from + 4 && key_at(&match->right_rest, to) == keys[i])
			to++;
		if (to == from + 4)
			to = bound(&match->right_rest, to, high, keys[i], true);
		found->from[i] = from;
		found->to[i] = to;
	}
}

/* Write down pairs of left and right rows until there is no room; at least as many rows as pairs. */
EXPORT int
dpsql_pairs(Match *match, int32_t *left, int32_t *right, int64_t room, int64_t *written)
{
	Found		found;
	int64_t		n = 0;
	int64_t		visited = 0;

	while (match->position < match->rows && visited < room)
	{
		dpsql_find(match, &found);
		for (int64_t i = 0; match->position < found.end; i++, match->position++)
		{
			int64_t		row = found.from[i] + match->inside;

			for (; row < found.to[i] && n < room; row++, n++)
			{
				left[n] = (int32_t) found.rows[i];
				right[n] = (int32_t) row;
			}
			if (row < found.to[i])
			{
				match->inside = row - found.from[i];
				*written = n;
				return PAUSED;
			}
			match->inside = 0;
		}
		visited += BATCH;
	}
	*written = n;
	return match->position < match->rows ? PAUSED : DONE;
}
