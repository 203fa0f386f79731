/*
 * cells.c
 *		dp.write_cells: the numbers of one grouping set of a release, as rows of its table.
 *
 * A release can have tens of millions of rows.  Here they are made from arrays
 * and inserted a batch at a time, as COPY does it: several times as fast as
 * INSERT ... SELECT.  What is written has been perturbed; for dp_executor, into
 * tables of its own.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_type_d.h"
#include "common/int.h"
#include "executor/tuptable.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "dpsql.h"

#define BATCH 1000
#define MAX_AXES 64

PG_FUNCTION_INFO_V1(dpsql_write_cells);

/* A group column: which axis it follows (-1: none), and its labels (none: NULL). */
typedef struct
{
	int			axis;
	int			count;
	Datum	   *values;
	bool	   *nulls;
} GroupColumn;

static int
int_array(ArrayType *array, int32 **values)
{
	if (ARR_NDIM(array) > 1 || ARR_HASNULL(array) || ARR_ELEMTYPE(array) != INT4OID)
		elog(ERROR, "dp.write_cells takes plain arrays of integers");
	*values = (int32 *) ARR_DATA_PTR(array);
	return ARR_NDIM(array) == 0 ? 0 : ARR_DIMS(array)[0];
}

/* The table is one that dp.release made: its own columns are of the types that are written. */
static void
check_columns(TupleDesc desc, int first)
{
	for (int n = 0; n < desc->natts; n++)
	{
		Form_pg_attribute attribute = TupleDescAttr(desc, n);
		Oid			type = n < first ? INT4OID : n >= desc->natts - 2 ? FLOAT8OID : attribute->atttypid;

		if (attribute->attisdropped || attribute->attgenerated != '\0' || attribute->atttypid != type)
			elog(ERROR, "dp.write_cells writes tables with the columns of a release only");
	}
	if (desc->constr != NULL && (desc->constr->num_check > 0 || desc->constr->num_defval > 0))
		elog(ERROR, "dp.write_cells writes tables with the columns of a release only");
}

/* Read the labels of all group columns by the types of the table's columns. */
static GroupColumn *
group_columns(TupleDesc desc, int first, int number, const int32 *axes, const int32 *counts,
			  ArrayType *labels)
{
	GroupColumn *columns = palloc0(sizeof(GroupColumn) * Max(number, 1));
	Datum	   *texts;
	bool	   *nulls;
	int			total;
	int			at = 0;

	deconstruct_array(labels, TEXTOID, -1, false, TYPALIGN_INT, &texts, &nulls, &total);
	for (int c = 0; c < number; c++)
	{
		Form_pg_attribute attribute = TupleDescAttr(desc, first + c);
		GroupColumn *column = &columns[c];
		Oid			input;
		Oid			parameter;

		column->axis = axes[c];
		column->count = counts[c];
		if (counts[c] < 0 || at + counts[c] > total)
			elog(ERROR, "dp.write_cells was given too few labels");
		column->values = palloc(sizeof(Datum) * Max(counts[c], 1));
		column->nulls = palloc(sizeof(bool) * Max(counts[c], 1));
		getTypeInputInfo(attribute->atttypid, &input, &parameter);
		for (int i = 0; i < counts[c]; i++, at++)
		{
			column->nulls[i] = nulls[at];
			column->values[i] = nulls[at] ? (Datum) 0 :
				OidInputFunctionCall(input, TextDatumGetCString(texts[at]), parameter,
									 attribute->atttypmod);
		}
	}
	if (at != total)
		elog(ERROR, "dp.write_cells was given too many labels");
	return columns;
}

/*
 * dp.write_cells(relation, query, grouping, values, errors, error, rows, axes, counts, labels)
 *
 * The table has the columns query (unless that is null), grouping, the group
 * columns, value and standard_error.  Values are in the order of an array with
 * axes of so many rows.
 */
Datum
dpsql_write_cells(PG_FUNCTION_ARGS)
{
	Relation	relation;
	TupleDesc	desc;
	bytea	   *values;
	bytea	   *errors = PG_ARGISNULL(4) ? NULL : PG_GETARG_BYTEA_PP(4);
	int32	   *rows;
	int32	   *axes;
	int32	   *counts;
	int			axis_number;
	int			column_number;
	int			first = PG_ARGISNULL(1) ? 1 : 2;
	int64		cells = 1;
	GroupColumn *columns;
	int32		place[MAX_AXES] = {0};
	TupleTableSlot *slots[BATCH];
	BulkInsertState state;
	CommandId	command = GetCurrentCommandId(true);
	MemoryContext batch = AllocSetContextCreate(CurrentMemoryContext, "dpsql cells",
												ALLOCSET_DEFAULT_SIZES);
	MemoryContext old;

	for (int i = 0; i < PG_NARGS(); i++)
		if (PG_ARGISNULL(i) && i != 1 && i != 4 && i != 5)
			elog(ERROR, "dp.write_cells takes no null here");
	values = PG_GETARG_BYTEA_PP(3);
	axis_number = int_array(PG_GETARG_ARRAYTYPE_P(6), &rows);
	column_number = int_array(PG_GETARG_ARRAYTYPE_P(7), &axes);
	relation = table_open(PG_GETARG_OID(0), RowExclusiveLock);
	desc = RelationGetDescr(relation);
	if (relation->rd_rel->relowner != GetUserId() || relation->rd_rel->relkind != RELKIND_RELATION)
		elog(ERROR, "dp.write_cells writes tables of its caller only");
	if (int_array(PG_GETARG_ARRAYTYPE_P(8), &counts) != column_number ||
		desc->natts != first + column_number + 2 || axis_number > MAX_AXES)
		elog(ERROR, "dp.write_cells was given arrays that do not fit the table");
	check_columns(desc, first);
	for (int i = 0; i < axis_number; i++)
	{
		if (rows[i] < 1 || pg_mul_s64_overflow(cells, rows[i], &cells))
			elog(ERROR, "dp.write_cells was given an empty axis");
	}
	if (VARSIZE_ANY_EXHDR(values) != cells * sizeof(float8) ||
		(errors && VARSIZE_ANY_EXHDR(errors) != cells * sizeof(float8)))
		elog(ERROR, "dp.write_cells was given another number of values than of cells");
	columns = group_columns(desc, first, column_number, axes, counts, PG_GETARG_ARRAYTYPE_P(9));
	for (int c = 0; c < column_number; c++)
		if (columns[c].axis >= axis_number ||
			(columns[c].axis >= 0 && columns[c].count != rows[columns[c].axis]) ||
			(columns[c].axis < 0 && columns[c].count > 1))
			elog(ERROR, "dp.write_cells was given labels that do not fit their axis");

	for (int i = 0; i < BATCH; i++)
		slots[i] = i < cells ? table_slot_create(relation, NULL) : NULL;
	state = GetBulkInsertState();
	for (int64 start = 0; start < cells; start += BATCH)
	{
		int			number = (int) Min((int64) BATCH, cells - start);

		CHECK_FOR_INTERRUPTS();
		for (int i = 0; i < number; i++)
		{
			TupleTableSlot *slot = slots[i];
			float8		number_at;

			ExecClearTuple(slot);
			memset(slot->tts_isnull, 0, sizeof(bool) * desc->natts);
			if (first == 2)
				slot->tts_values[0] = Int32GetDatum(PG_GETARG_INT32(1));
			slot->tts_values[first - 1] = Int32GetDatum(PG_GETARG_INT32(2));
			for (int c = 0; c < column_number; c++)
			{
				GroupColumn *column = &columns[c];
				int			k = column->axis >= 0 ? place[column->axis] : 0;

				slot->tts_isnull[first + c] = column->count == 0 || column->nulls[k];
				slot->tts_values[first + c] = column->count == 0 ? (Datum) 0 : column->values[k];
			}
			memcpy(&number_at, VARDATA_ANY(values) + (start + i) * sizeof(float8), sizeof(float8));
			slot->tts_values[desc->natts - 2] = Float8GetDatum(number_at);
			if (errors)
			{
				memcpy(&number_at, VARDATA_ANY(errors) + (start + i) * sizeof(float8), sizeof(float8));
				slot->tts_values[desc->natts - 1] = Float8GetDatum(number_at);
			}
			else
			{
				slot->tts_isnull[desc->natts - 1] = PG_ARGISNULL(5);
				slot->tts_values[desc->natts - 1] = PG_ARGISNULL(5) ? (Datum) 0 : PG_GETARG_DATUM(5);
			}
			ExecStoreVirtualTuple(slot);
			for (int axis = axis_number - 1; axis >= 0; axis--)
			{
				if (++place[axis] < rows[axis])
					break;
				place[axis] = 0;
			}
		}
		old = MemoryContextSwitchTo(batch);
		table_multi_insert(relation, slots, number, command, TABLE_INSERT_SKIP_FSM, state);
		MemoryContextSwitchTo(old);
		MemoryContextReset(batch);
		progress_add_rounds(number);
	}
	FreeBulkInsertState(state);
	table_finish_bulk_insert(relation, TABLE_INSERT_SKIP_FSM);
	for (int i = 0; i < BATCH; i++)
		if (slots[i])
			ExecDropSingleTupleTableSlot(slots[i]);
	table_close(relation, NoLock);
	PG_RETURN_INT64(cells);
}
