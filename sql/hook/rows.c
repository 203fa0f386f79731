/*
 * rows.c
 *		From the texts of an answer to the rows that the caller wants.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/tuplestore.h"

#include "dpsql.h"

/*
 * Turn texts into the columns that the caller wants.  The types are the
 * caller's choice where he calls dp.run himself, and a type can run code: a
 * domain its CHECK.  So this happens here, with the caller's rights, and sees
 * nothing but what is released.
 */
void
return_rows(ReturnSetInfo *caller, ArrayType *rows)
{
	MemoryContext old = MemoryContextSwitchTo(caller->econtext->ecxt_per_query_memory);
	TupleDesc	tupdesc = CreateTupleDescCopy(caller->expectedDesc);
	Tuplestorestate *store = tuplestore_begin_heap(true, false, work_mem);
	AttInMetadata *input = TupleDescGetAttInMetadata(tupdesc);
	char	  **texts = palloc(sizeof(char *) * tupdesc->natts);
	int			number = ARR_NDIM(rows) == 2 ? ARR_DIMS(rows)[0] : 0;
	Datum	   *values;
	bool	   *nulls;
	int			count;
	MemoryContext one_row;

	MemoryContextSwitchTo(old);
	if (number > 0 && ARR_DIMS(rows)[1] != tupdesc->natts)
		ereport(ERROR,
				(errcode(ERRCODE_DPSQL_PARAMETER),
				 errmsg("the column definition list has %d columns, the answer %d",
						tupdesc->natts, ARR_DIMS(rows)[1]),
				 errhint("Repeat the statement with as many columns; what is paid for is kept.")));
	deconstruct_array(rows, TEXTOID, -1, false, TYPALIGN_INT, &values, &nulls, &count);
	one_row = AllocSetContextCreate(CurrentMemoryContext, "dpsql row", ALLOCSET_DEFAULT_SIZES);
	for (int row = 0; row < number; row++)
	{
		old = MemoryContextSwitchTo(one_row);
		for (int i = 0; i < tupdesc->natts; i++)
		{
			int			k = row * tupdesc->natts + i;

			texts[i] = nulls[k] ? NULL : TextDatumGetCString(values[k]);
		}
		tuplestore_puttuple(store, BuildTupleFromCStrings(input, texts));
		MemoryContextSwitchTo(old);
		MemoryContextReset(one_row);
	}
	caller->returnMode = SFRM_Materialize;
	caller->setResult = store;
	caller->setDesc = tupdesc;
}

bool
wants_rows(ReturnSetInfo *caller)
{
	return caller != NULL && IsA(caller, ReturnSetInfo) && caller->expectedDesc != NULL &&
		(caller->allowedModes & SFRM_Materialize);
}
