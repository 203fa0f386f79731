/*
 * kernel_count.c
 *		Counts of matching rows, run by run and key by key.
 */
#include "kernel.h"

/* The slot of a key in the hash table, made when absent. */
static int64_t
slot_of(Count *count, int64_t key)
{
	int64_t		mask = count->capacity - 1;
	int64_t		slot = (int64_t) (((uint64_t) key * UINT64_C(0x9E3779B97F4A7C15)) >> 20) & mask;

	while (count->hashed[slot] != key)
	{
		if (count->hashed[slot] < 0)
		{
			count->hashed[slot] = key;
			break;
		}
		slot = (slot + 1) & mask;
	}
	return slot;
}

/* Move the hash table of an unfinished run into a larger one (hashed all -1, sums all 0). */
EXPORT void
dpsql_rehash(Count *count, int64_t *hashed, int64_t *sums, int64_t capacity, int32_t *touched)
{
	const int64_t *old_hashed = count->hashed;
	const int64_t *old_sums = count->sums;
	const int32_t *old_touched = count->touched;

	count->hashed = hashed;
	count->sums = sums;
	count->capacity = capacity;
	for (int64_t i = 0; i < count->touched_count; i++)
	{
		int64_t		slot = slot_of(count, old_hashed[old_touched[i]]);

		sums[slot] = old_sums[old_touched[i]];
		touched[i] = (int32_t) slot;
	}
	count->touched = touched;
}

enum
{
	PLAIN, TOUCHED, HASHED		/* how sums are kept */
};

/*
 * Add the pairs of one left row.  The constant arguments make one loop each:
 * part is the bytes of the only right column in the key, or 0 for any other
 * key; weighted says that right rows have weights.
 */
ALWAYS_INLINE bool
add_pairs(Count *count, int64_t from, int64_t to, int64_t base, int64_t weight,
		  const int kind, const int part, const bool weighted)
{
	int64_t    *sums = count->sums;
	int32_t    *touched = count->touched;
	int64_t		n = count->touched_count;
	int64_t		most = count->most;
	const void *values = count->right_part.columns[0].values;
	Column		right_weight = count->match.right_weight;
	bool		largest = count->largest != 0;
	bool		overflow = false;

	for (int64_t r = from; r < to; r++)
	{
		int64_t		key = base;
		int64_t		amount = weight;
		int64_t		sum;

		if (part == 2)
			key += ((const int16_t *) values)[r];
		else if (part == 4)
			key += ((const int32_t *) values)[r];
		else
			key += key_at(&count->right_part, r);
		if (weighted)
		{
			overflow |= __builtin_mul_overflow(weight, value_at(right_weight.values,
																right_weight.width, r), &amount);
			if (amount == 0)
				continue;
		}
		if (kind == HASHED)
			key = slot_of(count, key);
		if (kind != PLAIN)
		{
			touched[n] = (int32_t) key;
			n += sums[key] == 0;
		}
		if (largest)
			sum = amount > sums[key] ? amount : sums[key];
		else
			overflow |= __builtin_add_overflow(sums[key], amount, &sum);
		sums[key] = sum;
		most = sum > most ? sum : most;
	}
	count->touched_count = n;
	count->most = most;
	return !overflow;
}

/* Look up the next left rows, and let the right ones come near. */
static void
look_ahead(const Count *count, Found *found, int64_t part)
{
	const char *values = count->right_part.columns[0].values;

	dpsql_find(&count->match, found);
	keys_at(&count->left_part, found->rows, found->end - found->begin, found->base);
	for (int64_t i = 0; part > 0 && i < found->end - found->begin; i++)
		__builtin_prefetch(values + found->from[i] * part);
}

/* Visit left rows up to one position, or until the budget is used up. */
ALWAYS_INLINE int
walk(Count *count, Found *found, int64_t end, int64_t *budget, const int kind, const int part,
	 const bool weighted)
{
	Match	   *match = &count->match;
	bool		summed = count->right_part.number == 0 && !weighted;
	int64_t		left = *budget;

	for (; match->position < end && left > 0; match->position++)
	{
		int64_t		i;
		int64_t		from;
		int64_t		to;
		int64_t		weight;

		if (match->position >= found->end)
			look_ahead(count, found, part);
		i = match->position - found->begin;
		from = found->from[i];
		to = found->to[i];
		left -= to - from + 1;
		if (from == to)
			continue;
		weight = weight_at(&match->weight, found->rows[i]);
		if (weight == 0)
			continue;
		if (summed)
		{
			/* all its pairs have one key and one weight */
			if (!count->largest && __builtin_mul_overflow(weight, to - from, &weight))
				return OVERFLOWN;
			to = from + 1;
		}
		if (kind == HASHED && 2 * (count->touched_count + to - from) > count->capacity)
		{
			count->needed = count->touched_count + (to - from);
			return CROWDED;
		}
		if (!add_pairs(count, from, to, found->base[i], weight, kind, part, weighted))
			return OVERFLOWN;
	}
	*budget = left;
	return match->position < end ? PAUSED : DONE;
}

typedef int (*Walk) (Count *, Found *, int64_t, int64_t *);

#define WALK(name, kind, part, weighted) \
	static int name(Count *count, Found *found, int64_t end, int64_t *budget) \
	{ return walk(count, found, end, budget, kind, part, weighted); }
#define WALKS(kind) \
	WALK(kind##_0, kind, 0, false) WALK(kind##_0_weighted, kind, 0, true) \
	WALK(kind##_2, kind, 2, false) WALK(kind##_2_weighted, kind, 2, true) \
	WALK(kind##_4, kind, 4, false) WALK(kind##_4_weighted, kind, 4, true)
#define NAMES(kind) \
	{{kind##_0, kind##_0_weighted}, {kind##_2, kind##_2_weighted}, {kind##_4, kind##_4_weighted}}

WALKS(PLAIN)
WALKS(TOUCHED)
WALKS(HASHED)

static const Walk walks[3][3][2] = {NAMES(PLAIN), NAMES(TOUCHED), NAMES(HASHED)};

/* Write down the counts of a finished run, unless only the largest is wanted, and clear them. */
static void
emit(Count *count)
{
	bool		keep = count->room > 0;
	int64_t		n = count->emitted;

	if (count->touched == NULL)
	{
		for (int64_t key = 0; keep && key < count->capacity; key++)
		{
			count->out_run[n] = (int32_t) count->run;
			count->out_key[n] = key;
			count->out_count[n] = count->sums[key];
			n += count->sums[key] != 0;
		}
		memset(count->sums, 0, sizeof(int64_t) * count->capacity);
	}
	for (int64_t i = 0; count->touched != NULL && i < count->touched_count; i++)
	{
		int64_t		slot = count->touched[i];

		if (keep)
		{
			count->out_run[n] = (int32_t) count->run;
			count->out_key[n] = count->hashed == NULL ? slot : count->hashed[slot];
			count->out_count[n] = count->sums[slot];
			n++;
		}
		count->sums[slot] = 0;
		if (count->hashed != NULL)
			count->hashed[slot] = -1;
	}
	count->emitted = n;
	count->touched_count = 0;
}

/*
 * Count pairs, run by run.  A single run (no runs) stays in sums when it ends.
 * With plain sums the output must have room for one more entry than sums has.
 */
EXPORT int
dpsql_count(Count *count, int64_t budget)
{
	int			kind = count->touched == NULL ? PLAIN : count->hashed == NULL ? TOUCHED : HASHED;
	const Key  *part = &count->right_part;
	int			bytes = 0;
	Walk		step;
	Found		found;

	if (part->number == 1 && part->columns[0].radix == 1 && part->columns[0].width < 8)
		bytes = (int) part->columns[0].width;
	step = walks[kind][bytes / 2][count->match.right_weight.values != NULL];
	found.begin = found.end = 0;
	if (count->runs == NULL)
		return step(count, &found, count->match.rows, &budget);
	for (; count->run < count->run_count; count->run++)
	{
		int			status;

		if (count->runs[count->run] == count->runs[count->run + 1])
			continue;
		status = step(count, &found, count->runs[count->run + 1], &budget);
		if (status != DONE)
			return status;
		if (count->room > 0)
		{
			int64_t		entries = kind == PLAIN ? count->capacity + 1 : count->touched_count;

			if (count->emitted + entries > count->room)
				return FULL;
		}
		emit(count);
		budget -= count->touched == NULL ? count->capacity / 16 : 0;
	}
	return DONE;
}
