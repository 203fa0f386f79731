/*
 * locks.c
 *		Which locks a call takes, when it takes them, and when it releases them.
 *
 * PostgreSQL keeps the locks of analysis and reading until the transaction
 * ends.  An analyst can leave a transaction open for ever, and an owner who
 * wants to alter the relation would wait that long.  So calls that only read
 * run in a subtransaction that is always rolled back: the rollback releases the
 * locks that were taken in it.  Until then they protect the relations and
 * declarations from changes.
 *
 * PostgreSQL takes some locks only when a row arrives: on the TOAST table of a
 * long value, and on the catalogs that an expression reads for its first value.
 * Other sessions could see in pg_locks whether a row exists, or fill the lock
 * table so that the question fails only if the row exists.  So all these locks
 * are taken before the first row is read, in parallel workers as well.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/parallel.h"
#include "access/relation.h"
#include "access/xact.h"
#include "catalog/pg_am.h"
#include "catalog/pg_amop.h"
#include "catalog/pg_amproc.h"
#include "catalog/pg_cast.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_enum.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_opclass.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_opfamily.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_range.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "storage/lmgr.h"
#include "utils/array.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/resowner.h"
#include "utils/syscache.h"

#include "dpsql.h"

PG_FUNCTION_INFO_V1(dpsql_lock_members);
PG_FUNCTION_INFO_V1(dpsql_lock_at_once);

/* Catalogs that functions may read when they are called: for comparisons, collations, enums. */
static const Oid catalogs_of_values[] = {
	AccessMethodRelationId, AccessMethodOperatorRelationId, AccessMethodProcedureRelationId, CastRelationId,
	CollationRelationId, EnumRelationId, OperatorClassRelationId, OperatorFamilyRelationId,
	OperatorRelationId, ProcedureRelationId, RangeRelationId, TypeRelationId
};

static ExecutorStart_hook_type previous_start = NULL;

/*
 * Lock a relation, its indexes, its TOAST table and the index of that, and have
 * them in the relation cache; false if the relation does not exist.  If rows
 * follow, fill the caches for the types of its columns, too.
 */
static bool
lock_with_indexes(Oid oid, bool before_rows)
{
	Relation	relation = try_relation_open(oid, AccessShareLock);
	List	   *indexes;
	ListCell   *index;
	Oid			toast;

	if (relation == NULL)
		return false;
	indexes = RelationGetIndexList(relation);
	foreach(index, indexes)
		index_close(index_open(lfirst_oid(index), AccessShareLock), NoLock);
	list_free(indexes);
	if (before_rows)
		look_up_types(relation);
	toast = relation->rd_rel->reltoastrelid;
	relation_close(relation, NoLock);
	if (OidIsValid(toast))
		lock_with_indexes(toast, false);
	return true;
}

static void
lock_catalogs_of_values(void)
{
	for (int i = 0; i < lengthof(catalogs_of_values); i++)
		lock_with_indexes(catalogs_of_values[i], false);
}

/* ExecutorStart hook: a parallel worker takes its own locks, so it locks the same relations as the leader. */
static void
lock_before_rows(QueryDesc *query, int flags)
{
	if (IsParallelWorker() && executor_runs())
	{
		ListCell   *cell;

		foreach(cell, query->plannedstmt->rtable)
		{
			RangeTblEntry *rte = lfirst_node(RangeTblEntry, cell);

			if (rte->rtekind == RTE_RELATION)
				lock_with_indexes(rte->relid, false);
		}
		lock_catalogs_of_values();
	}
	if (previous_start)
		previous_start(query, flags);
	else
		standard_ExecutorStart(query, flags);
}

void
locks_init(void)
{
	previous_start = ExecutorStart_hook;
	ExecutorStart_hook = lock_before_rows;
}

/*
 * Call a function in a subtransaction that is rolled back, whether the function
 * succeeds or fails.  Its result is in the caller's memory context, so that it
 * survives the rollback.
 */
Datum
call_apart(Datum (*work) (FunctionCallInfo), FunctionCallInfo fcinfo)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	volatile Datum result = (Datum) 0;
	ErrorData  *volatile error = NULL;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		result = work(fcinfo);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
	}
	PG_END_TRY();
	RollbackAndReleaseCurrentSubTransaction();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	forget_lookups();
	if (error)
		ReThrowError((ErrorData *) error);
	return result;
}

/* FunctionCallInvoke is a macro, of which call_apart could not take the address. */
Datum
invoke_function(FunctionCallInfo fcinfo)
{
	return FunctionCallInvoke(fcinfo);
}

/*
 * dp.lock_members(relations oid[], before_rows boolean): locks relations, their
 * partitions, children, indexes and TOAST tables.  If their rows will be read,
 * it locks the catalogs above and fills the caches that rows could fill, too.
 * Called before the charge, so that a question that waits for a lock, or finds
 * the lock table full, has not been charged yet.  Relations that do not exist
 * any more are skipped.
 */
Datum
dpsql_lock_members(PG_FUNCTION_ARGS)
{
	int			count;
	Oid		   *oids = objects_of(PG_GETARG_DATUM(0), &count);
	bool		before_rows = PG_GETARG_BOOL(1);
	ListCell   *cell;

	for (int i = 0; i < count; i++)
	{
		if (!lock_with_indexes(oids[i], before_rows))
			continue;
		foreach(cell, find_all_inheritors(oids[i], AccessShareLock, NULL))
		{
			if (lfirst_oid(cell) != oids[i])
				lock_with_indexes(lfirst_oid(cell), before_rows);
		}
	}
	if (before_rows)
	{
		lock_catalogs_of_values();
		look_up_before_rows();
	}
	PG_RETURN_VOID();
}

/* dp.lock_at_once(relation oid): lock a relation without waiting; false if it is locked or does not exist */
Datum
dpsql_lock_at_once(PG_FUNCTION_ARGS)
{
	Oid			relation = PG_GETARG_OID(0);

	if (!ConditionalLockRelationOid(relation, AccessShareLock))
		PG_RETURN_BOOL(false);
	PG_RETURN_BOOL(SearchSysCacheExists1(RELOID, ObjectIdGetDatum(relation)));
}
