/*
 * pack.c
 *		dp.pack: rows of integers as one bytea, column after column.
 *
 * The result is, in the machine's byte order and all of it aligned to eight
 * bytes: the number of columns, the number of rows, for each column the bytes
 * of a value (4 or 8), each as an int64; then the columns.  A column has 8
 * bytes a value only if it must.  A row with a NULL is left out: it joins
 * nothing.  Rows stay together, their order is no particular one; partial
 * results may be put together in any order, so the aggregate is parallel.
 *
 * Rows are kept in chunks that never move, each with its own widths.  The
 * limit counts the bytes of values that one process holds; the leader of a
 * parallel plan ends up with all of them, so the result obeys it as well.
 */
#include "postgres.h"

#include "catalog/pg_type_d.h"
#include "fmgr.h"
#include "utils/memutils.h"

#include "compat.h"

#define MAX_COLUMNS 16
#define FIRST_ROWS 64
#define MOST_ROWS 65536

PG_FUNCTION_INFO_V1(dpsql_pack_step);
PG_FUNCTION_INFO_V1(dpsql_pack_combine);
PG_FUNCTION_INFO_V1(dpsql_pack_serialize);
PG_FUNCTION_INFO_V1(dpsql_pack_deserialize);
PG_FUNCTION_INFO_V1(dpsql_pack_final);

typedef struct Chunk
{
	struct Chunk *next;
	int64		rows;
	int64		capacity;
	int32		width[MAX_COLUMNS];
	char	   *values[MAX_COLUMNS];
} Chunk;

typedef struct
{
	MemoryContext context;
	int64		limit;			/* most bytes of values that the caller accepts */
	int64		used;			/* bytes of values */
	int32		columns;
	Oid			types[MAX_COLUMNS];
	Chunk	   *first;
	Chunk	   *last;
} Pack;

static MemoryContext
aggregate_context(FunctionCallInfo fcinfo)
{
	MemoryContext context;

	if (!AggCheckCallContext(fcinfo, &context))
		elog(ERROR, "a dp.pack function was called outside an aggregate");
	return context;
}

static Pack *
pack_create(MemoryContext context, int32 columns, int64 limit)
{
	Pack	   *pack = MemoryContextAllocZero(context, sizeof(Pack));

	pack->context = context;
	pack->columns = columns;
	pack->limit = Min(limit, (int64) (MaxAllocSize / 2));
	return pack;
}

/* Count bytes against the limit. */
static void
pack_use(Pack *pack, int64 bytes)
{
	pack->used += bytes;
	if (pack->used > pack->limit)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("packed rows exceed the limit of %lld bytes",
						(long long) pack->limit)));
}

static Chunk *
pack_append(Pack *pack, int64 capacity, const int32 *width)
{
	Chunk	   *chunk = MemoryContextAllocZero(pack->context, sizeof(Chunk));

	chunk->capacity = capacity;
	for (int c = 0; c < pack->columns; c++)
	{
		chunk->width[c] = width[c];
		chunk->values[c] = MemoryContextAlloc(pack->context, capacity * width[c]);
	}
	if (pack->last == NULL)
		pack->first = chunk;
	else
		pack->last->next = chunk;
	pack->last = chunk;
	return chunk;
}

/* A chunk with room for one more row, of values that may be wide where the mask says so. */
static Chunk *
pack_room(Pack *pack, uint32 wide)
{
	Chunk	   *last = pack->last;
	int32		width[MAX_COLUMNS];
	bool		fits = last != NULL && last->rows < last->capacity;

	for (int c = 0; c < pack->columns; c++)
	{
		bool		needed = (wide & (1U << c)) != 0;

		width[c] = needed || (last != NULL && last->width[c] == sizeof(int64)) ?
			sizeof(int64) : sizeof(int32);
		fits = fits && width[c] == last->width[c];
	}
	if (fits)
		return last;
	return pack_append(pack, last == NULL ? FIRST_ROWS : Min(MOST_ROWS, 2 * last->capacity), width);
}

/* The types of the columns, at the first row. */
static Pack *
pack_begin(FunctionCallInfo fcinfo)
{
	int			columns = PG_NARGS() - 2;
	Pack	   *pack;

	if (PG_ARGISNULL(1) || PG_GETARG_INT64(1) < 0)
		elog(ERROR, "the limit of dp.pack must be a number of bytes");
	if (columns < 1 || columns > MAX_COLUMNS || get_fn_expr_variadic(fcinfo->flinfo))
		elog(ERROR, "dp.pack takes one to %d columns", MAX_COLUMNS);
	pack = pack_create(aggregate_context(fcinfo), columns, PG_GETARG_INT64(1));
	for (int c = 0; c < columns; c++)
	{
		pack->types[c] = get_fn_expr_argtype(fcinfo->flinfo, c + 2);
		if (pack->types[c] != INT2OID && pack->types[c] != INT4OID && pack->types[c] != INT8OID)
			elog(ERROR, "dp.pack takes integers only");
	}
	return pack;
}

/* Arguments: state, the limit in bytes, the columns. */
Datum
dpsql_pack_step(PG_FUNCTION_ARGS)
{
	Pack	   *pack = PG_ARGISNULL(0) ? pack_begin(fcinfo) : (Pack *) PG_GETARG_POINTER(0);
	int64		values[MAX_COLUMNS];
	uint32		wide = 0;
	Chunk	   *chunk;
	int64		bytes = 0;

	for (int c = 0; c < pack->columns; c++)
	{
		if (PG_ARGISNULL(c + 2))
			PG_RETURN_POINTER(pack);
		if (pack->types[c] == INT8OID)
		{
			values[c] = PG_GETARG_INT64(c + 2);
			if (values[c] != (int32) values[c])
				wide |= 1U << c;
		}
		else
			values[c] = pack->types[c] == INT4OID ? PG_GETARG_INT32(c + 2) : PG_GETARG_INT16(c + 2);
	}
	chunk = pack->last;
	if (wide != 0 || chunk == NULL || chunk->rows == chunk->capacity)
		chunk = pack_room(pack, wide);
	for (int c = 0; c < pack->columns; c++)
	{
		if (chunk->width[c] == sizeof(int64))
			((int64 *) chunk->values[c])[chunk->rows] = values[c];
		else
			((int32 *) chunk->values[c])[chunk->rows] = (int32) values[c];
		bytes += chunk->width[c];
	}
	pack_use(pack, bytes);
	chunk->rows++;
	PG_RETURN_POINTER(pack);
}

/* Copy a chunk to the end. */
static void
pack_copy(Pack *pack, const Chunk *chunk)
{
	Chunk	   *copy;

	for (int c = 0; c < pack->columns; c++)
		pack_use(pack, chunk->rows * chunk->width[c]);
	copy = pack_append(pack, Max(chunk->rows, 1), chunk->width);
	copy->rows = chunk->rows;
	for (int c = 0; c < pack->columns; c++)
		memcpy(copy->values[c], chunk->values[c], chunk->rows * chunk->width[c]);
}

Datum
dpsql_pack_combine(PG_FUNCTION_ARGS)
{
	Pack	   *into = PG_ARGISNULL(0) ? NULL : (Pack *) PG_GETARG_POINTER(0);
	Pack	   *other = PG_ARGISNULL(1) ? NULL : (Pack *) PG_GETARG_POINTER(1);

	if (other == NULL)
	{
		if (into == NULL)
			PG_RETURN_NULL();
		PG_RETURN_POINTER(into);
	}
	if (into == NULL)
		into = pack_create(aggregate_context(fcinfo), other->columns, other->limit);
	for (const Chunk *chunk = other->first; chunk != NULL; chunk = chunk->next)
		pack_copy(into, chunk);
	PG_RETURN_POINTER(into);
}

/* What a serialized state begins with, and each of its chunks; all multiples of eight bytes. */
typedef struct
{
	int64		limit;
	int64		columns;
} StateHeader;

typedef struct
{
	int64		rows;
	int32		width[MAX_COLUMNS];
} ChunkHeader;

/* Chunks are multiples of 8 bytes long; a state may begin anywhere, so they are read by memcpy. */
static Size
chunk_size(int32 columns, int64 rows, const int32 *width)
{
	Size		size = sizeof(ChunkHeader);

	for (int c = 0; c < columns; c++)
		size += MAXALIGN(rows * width[c]);
	return size;
}

Datum
dpsql_pack_serialize(PG_FUNCTION_ARGS)
{
	Pack	   *pack = (Pack *) PG_GETARG_POINTER(0);
	StateHeader header = {pack->limit, pack->columns};
	Size		size = sizeof(StateHeader);
	bytea	   *result;
	char	   *place;

	for (const Chunk *chunk = pack->first; chunk != NULL; chunk = chunk->next)
		size += chunk_size(pack->columns, chunk->rows, chunk->width);
	result = palloc(VARHDRSZ + size);
	SET_VARSIZE(result, VARHDRSZ + size);
	place = VARDATA(result);
	memcpy(place, &header, sizeof(header));
	place += sizeof(header);
	for (const Chunk *chunk = pack->first; chunk != NULL; chunk = chunk->next)
	{
		ChunkHeader part;

		memset(&part, 0, sizeof(part));
		part.rows = chunk->rows;
		memcpy(part.width, chunk->width, sizeof(part.width));
		memcpy(place, &part, sizeof(part));
		place += sizeof(part);
		for (int c = 0; c < pack->columns; c++)
		{
			memcpy(place, chunk->values[c], chunk->rows * chunk->width[c]);
			place += MAXALIGN(chunk->rows * chunk->width[c]);
		}
	}
	PG_RETURN_BYTEA_P(result);
}

/* A state whose chunks point into the serialized one: it is combined at once and then forgotten. */
Datum
dpsql_pack_deserialize(PG_FUNCTION_ARGS)
{
	bytea	   *serialized = PG_GETARG_BYTEA_PP(0);
	char	   *place = VARDATA_ANY(serialized);
	char	   *end = place + VARSIZE_ANY_EXHDR(serialized);
	StateHeader header;
	Pack	   *pack;

	memcpy(&header, place, sizeof(header));
	place += sizeof(header);
	pack = pack_create(CurrentMemoryContext, (int32) header.columns, header.limit);
	while (place < end)
	{
		Chunk	   *chunk = palloc0(sizeof(Chunk));
		ChunkHeader part;

		memcpy(&part, place, sizeof(part));
		place += sizeof(part);
		chunk->rows = chunk->capacity = part.rows;
		memcpy(chunk->width, part.width, sizeof(part.width));
		for (int c = 0; c < pack->columns; c++)
		{
			chunk->values[c] = place;
			place += MAXALIGN(part.rows * part.width[c]);
		}
		if (pack->last == NULL)
			pack->first = chunk;
		else
			pack->last->next = chunk;
		pack->last = chunk;
	}
	PG_RETURN_POINTER(pack);
}

/* Chunks become columns; each is freed when it is copied.  NULL when there was no row. */
Datum
dpsql_pack_final(PG_FUNCTION_ARGS)
{
	Pack	   *pack = PG_ARGISNULL(0) ? NULL : (Pack *) PG_GETARG_POINTER(0);
	int64		rows = 0;
	int64		header[2 + MAX_COLUMNS];
	char	   *column[MAX_COLUMNS];
	Size		size;
	bytea	   *result;

	if (pack == NULL || pack->first == NULL)
		PG_RETURN_NULL();
	memset(header, 0, sizeof(header));
	for (const Chunk *chunk = pack->first; chunk != NULL; chunk = chunk->next)
	{
		rows += chunk->rows;
		for (int c = 0; c < pack->columns; c++)
			header[2 + c] = Max(header[2 + c], chunk->width[c]);
	}
	header[0] = pack->columns;
	header[1] = rows;
	size = sizeof(int64) * (2 + pack->columns);
	for (int c = 0; c < pack->columns; c++)
		size += MAXALIGN(rows * header[2 + c]);
	result = palloc(VARHDRSZ + size);
	SET_VARSIZE(result, VARHDRSZ + size);
	memcpy(VARDATA(result), header, sizeof(int64) * (2 + pack->columns));
	column[0] = VARDATA(result) + sizeof(int64) * (2 + pack->columns);
	for (int c = 1; c < pack->columns; c++)
		column[c] = column[c - 1] + MAXALIGN(rows * header[1 + c]);
	while (pack->first != NULL)
	{
		Chunk	   *chunk = pack->first;

		for (int c = 0; c < pack->columns; c++)
		{
			if (chunk->width[c] == header[2 + c])
				memcpy(column[c], chunk->values[c], chunk->rows * chunk->width[c]);
			else
			{
				for (int64 r = 0; r < chunk->rows; r++)
				{
					int64		value = ((int32 *) chunk->values[c])[r];

					memcpy(column[c] + r * sizeof(int64), &value, sizeof(value));
				}
			}
			column[c] += chunk->rows * header[2 + c];
			pfree(chunk->values[c]);
		}
		pack->first = chunk->next;
		pfree(chunk);
	}
	pack->last = NULL;
	PG_RETURN_BYTEA_P(result);
}
