/*
 * arrays.c
 *		dp.integers, dp.bigints, dp.floats: the bytes of an array as an array.
 *
 * PL/Python would write every number as a text and read it back.  The smallest
 * integer stands for NULL, and so does a float that is not a number.
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type_d.h"
#include "fmgr.h"
#include "utils/array.h"

#include "dpsql.h"

PG_FUNCTION_INFO_V1(dpsql_integers);
PG_FUNCTION_INFO_V1(dpsql_bigints);
PG_FUNCTION_INFO_V1(dpsql_floats);

static ArrayType *
as_array(bytea *bytes, Oid type, int width)
{
	int			length = VARSIZE_ANY_EXHDR(bytes);
	int			number = length / width;
	int			low = 1;
	const char *from = VARDATA_ANY(bytes);
	Datum	   *values = palloc(sizeof(Datum) * Max(number, 1));
	bool	   *nulls = palloc(sizeof(bool) * Max(number, 1));

	if (number * width != length)
		ereport(ERROR,
				(errcode(ERRCODE_DPSQL_PARAMETER),
				 errmsg("%d bytes are no array of values of %d bytes", length, width)));
	if (number == 0)
		return construct_empty_array(type);
	for (int i = 0; i < number; i++, from += width)
	{
		if (type == INT4OID)
		{
			int32		value;

			memcpy(&value, from, sizeof(value));
			nulls[i] = value == PG_INT32_MIN;
			values[i] = Int32GetDatum(value);
		}
		else if (type == INT8OID)
		{
			int64		value;

			memcpy(&value, from, sizeof(value));
			nulls[i] = value == PG_INT64_MIN;
			values[i] = Int64GetDatum(value);
		}
		else
		{
			float8		value;

			memcpy(&value, from, sizeof(value));
			nulls[i] = isnan(value);
			values[i] = Float8GetDatum(value);
		}
	}
	return construct_md_array(values, nulls, 1, &number, &low, type, width,
							  width == 4 ? true : FLOAT8PASSBYVAL,
							  width == 4 ? TYPALIGN_INT : TYPALIGN_DOUBLE);
}

Datum
dpsql_integers(PG_FUNCTION_ARGS)
{
	PG_RETURN_ARRAYTYPE_P(as_array(PG_GETARG_BYTEA_PP(0), INT4OID, sizeof(int32)));
}

Datum
dpsql_bigints(PG_FUNCTION_ARGS)
{
	PG_RETURN_ARRAYTYPE_P(as_array(PG_GETARG_BYTEA_PP(0), INT8OID, sizeof(int64)));
}

Datum
dpsql_floats(PG_FUNCTION_ARGS)
{
	PG_RETURN_ARRAYTYPE_P(as_array(PG_GETARG_BYTEA_PP(0), FLOAT8OID, sizeof(float8)));
}
