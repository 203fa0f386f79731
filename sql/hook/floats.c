/*
 * floats.c
 *		dp.floats: the bytes of an array of double precision as that array.
 *
 * A release has up to millions of numbers; PL/Python would write each of them
 * as text and read it again.
 */
#include "postgres.h"

#include "catalog/pg_type_d.h"
#include "fmgr.h"
#include "utils/array.h"

PG_FUNCTION_INFO_V1(dpsql_floats);

Datum
dpsql_floats(PG_FUNCTION_ARGS)
{
	bytea	   *bytes = PG_GETARG_BYTEA_PP(0);
	Size		size = VARSIZE_ANY_EXHDR(bytes);
	Size		header = ARR_OVERHEAD_NONULLS(1);
	ArrayType  *array;

	if (size % sizeof(float8) != 0)
		elog(ERROR, "dp.floats takes the bytes of numbers of %d bytes", (int) sizeof(float8));
	if (size == 0)
		PG_RETURN_ARRAYTYPE_P(construct_empty_array(FLOAT8OID));
	array = palloc0(header + size);
	SET_VARSIZE(array, header + size);
	array->ndim = 1;
	array->dataoffset = 0;
	array->elemtype = FLOAT8OID;
	ARR_DIMS(array)[0] = size / sizeof(float8);
	ARR_LBOUND(array)[0] = 1;
	memcpy(ARR_DATA_PTR(array), VARDATA_ANY(bytes), size);
	PG_RETURN_ARRAYTYPE_P(array);
}
