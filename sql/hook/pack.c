/*
 * pack.c
 *		dp.pack and dp.pack4: rows of one to four integers as one bytea.
 *
 * The rows lie one after the other (row-major), each column in the machine's
 * own byte order, so that numpy.frombuffer(...).reshape(-1, columns) is the
 * table.  One aggregate holds whole rows; therefore partial results may be
 * concatenated in any order and the aggregates are parallel.  A row with a
 * NULL in any column is left out: it joins nothing.
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/memutils.h"

#define INITIAL_BYTES 1024

PG_FUNCTION_INFO_V1(dpsql_pack_step);
PG_FUNCTION_INFO_V1(dpsql_pack4_step);
PG_FUNCTION_INFO_V1(dpsql_pack_combine);
PG_FUNCTION_INFO_V1(dpsql_pack_serialize);
PG_FUNCTION_INFO_V1(dpsql_pack_deserialize);
PG_FUNCTION_INFO_V1(dpsql_pack_final);

typedef struct
{
	bytea	   *buffer;			/* header and values; its size is set at the end */
	Size		used;			/* bytes of values */
	Size		allocated;		/* bytes for values */
	int64		limit;			/* most bytes that the caller accepts */
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
pack_create(MemoryContext context, int64 limit)
{
	Pack	   *pack = MemoryContextAlloc(context, sizeof(Pack));

	pack->buffer = MemoryContextAlloc(context, VARHDRSZ + INITIAL_BYTES);
	pack->used = 0;
	pack->allocated = INITIAL_BYTES;
	pack->limit = Min(limit, (int64) (MaxAllocSize - VARHDRSZ));
	return pack;
}

/* Room for more values; repalloc keeps the buffer in its context. */
static char *
pack_reserve(Pack *pack, Size bytes)
{
	char	   *end;

	if ((int64) (pack->used + bytes) > pack->limit)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("packed rows exceed the limit of %lld bytes",
						(long long) pack->limit)));
	if (pack->used + bytes > pack->allocated)
	{
		Size		wanted = Max(pack->allocated * 2, pack->used + bytes);

		wanted = Min(wanted, MaxAllocSize - VARHDRSZ);
		pack->buffer = repalloc(pack->buffer, VARHDRSZ + wanted);
		pack->allocated = wanted;
	}
	end = VARDATA(pack->buffer) + pack->used;
	pack->used += bytes;
	return end;
}

/* Arguments: state, the columns, the limit in bytes. */
static inline Pack *
pack_row(FunctionCallInfo fcinfo, Size width)
{
	int			last = PG_NARGS() - 1;
	Pack	   *pack;
	char	   *row;

	if (PG_ARGISNULL(0))
	{
		if (PG_ARGISNULL(last) || PG_GETARG_INT64(last) < 0)
			elog(ERROR, "the limit of dp.pack must be a number of bytes");
		pack = pack_create(aggregate_context(fcinfo), PG_GETARG_INT64(last));
	}
	else
		pack = (Pack *) PG_GETARG_POINTER(0);
	for (int i = 1; i < last; i++)
	{
		if (PG_ARGISNULL(i))
			return pack;
	}
	row = pack_reserve(pack, width * (last - 1));
	for (int i = 1; i < last; i++, row += width)
	{
		if (width == sizeof(int64))
		{
			int64		value = PG_GETARG_INT64(i);

			memcpy(row, &value, sizeof(value));
		}
		else
		{
			int32		value = PG_GETARG_INT32(i);

			memcpy(row, &value, sizeof(value));
		}
	}
	return pack;
}

Datum
dpsql_pack_step(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(pack_row(fcinfo, sizeof(int64)));
}

Datum
dpsql_pack4_step(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(pack_row(fcinfo, sizeof(int32)));
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
		into = pack_create(aggregate_context(fcinfo), other->limit);
	if (other->used > 0)
		memcpy(pack_reserve(into, other->used), VARDATA(other->buffer), other->used);
	PG_RETURN_POINTER(into);
}

/* The limit, then the values. */
Datum
dpsql_pack_serialize(PG_FUNCTION_ARGS)
{
	Pack	   *pack = (Pack *) PG_GETARG_POINTER(0);
	bytea	   *result;

	if (pack->used > MaxAllocSize - VARHDRSZ - sizeof(int64))
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("packed rows exceed the limit of %lld bytes", (long long) pack->limit)));
	result = palloc(VARHDRSZ + sizeof(int64) + pack->used);
	SET_VARSIZE(result, VARHDRSZ + sizeof(int64) + pack->used);
	memcpy(VARDATA(result), &pack->limit, sizeof(int64));
	memcpy(VARDATA(result) + sizeof(int64), VARDATA(pack->buffer), pack->used);
	PG_RETURN_BYTEA_P(result);
}

Datum
dpsql_pack_deserialize(PG_FUNCTION_ARGS)
{
	bytea	   *serialized = PG_GETARG_BYTEA_PP(0);
	Size		bytes = VARSIZE_ANY_EXHDR(serialized) - sizeof(int64);
	int64		limit;
	Pack	   *pack;

	memcpy(&limit, VARDATA_ANY(serialized), sizeof(int64));
	pack = pack_create(CurrentMemoryContext, limit);
	if (bytes > 0)
		memcpy(pack_reserve(pack, bytes), VARDATA_ANY(serialized) + sizeof(int64), bytes);
	PG_RETURN_POINTER(pack);
}

/* The buffer itself, without a copy; the size in its header is all that is set. */
Datum
dpsql_pack_final(PG_FUNCTION_ARGS)
{
	Pack	   *pack;

	if (PG_ARGISNULL(0))
		pack = pack_create(CurrentMemoryContext, 0);
	else
		pack = (Pack *) PG_GETARG_POINTER(0);
	SET_VARSIZE(pack->buffer, VARHDRSZ + pack->used);
	PG_RETURN_BYTEA_P(pack->buffer);
}
