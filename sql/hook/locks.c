/*
 * locks.c
 *		What a call locks, when, and for how long.
 *
 * Analysis and reading lock relations until the transaction ends, which the
 * asker can put off for ever, while owners who want to alter a relation wait.
 * So what only reads runs in a subtransaction that is always rolled back,
 * which lets go of the locks that were taken in it, and of nothing else: rows
 * and declarations stay as they are while the call runs.
 *
 * Some locks are taken only when a row arrives: those of the TOAST table that a
 * value is fetched from, and of catalogs that an expression looks into for its
 * first value.  Others would see in pg_locks whether a row exists, or fill the
 * lock table so that the row decides whether the question fails.  So all of
 * them are taken before the first row, in parallel workers as well.
 */
#include "postgres.h"

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

/* The catalogs of the caches that functions use when they are called: comparisons, collations, enums. */
static const Oid looked_into[] = {
	AccessMethodRelationId, AccessMethodOperatorRelationId, AccessMethodProcedureRelationId, CastRelationId,
	CollationRelationId, EnumRelationId, OperatorClassRelationId, OperatorFamilyRelationId,
	OperatorRelationId, ProcedureRelationId, RangeRelationId, TypeRelationId
};

static ExecutorStart_hook_type previous_start = NULL;

/* The relation, its indexes, and those of its TOAST table; whether it is there. */
static bool
lock_with_indexes(Oid oid)
{
	Relation	relation = try_relation_open(oid, AccessShareLock);
	ListCell   *index;
	Oid			toast;

	if (relation == NULL)
		return false;
	foreach(index, RelationGetIndexList(relation))
		LockRelationOid(lfirst_oid(index), AccessShareLock);
	toast = relation->rd_rel->reltoastrelid;
	relation_close(relation, NoLock);
	if (OidIsValid(toast))
		lock_with_indexes(toast);
	return true;
}

static void
lock_looked_into(void)
{
	for (int i = 0; i < lengthof(looked_into); i++)
		lock_with_indexes(looked_into[i]);
}

/* A parallel worker takes locks of its own. */
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
				lock_with_indexes(rte->relid);
		}
		lock_looked_into();
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

/* The result is in the caller's memory context, and no part of the subtransaction. */
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
	if (error)
		ReThrowError((ErrorData *) error);
	return result;
}

/* FunctionCallInvoke is a macro. */
Datum
invoke_function(FunctionCallInfo fcinfo)
{
	return FunctionCallInvoke(fcinfo);
}

/*
 * dp.lock_members(relations oid[]): locks relations, partitions, children,
 * indexes and what rows may need.  What has to be waited for, and what finds
 * the lock table full, is so before the charge.  A relation that is gone is
 * left out.
 */
Datum
dpsql_lock_members(PG_FUNCTION_ARGS)
{
	int			count;
	Oid		   *oids = objects_of(PG_GETARG_DATUM(0), &count);
	ListCell   *cell;

	for (int i = 0; i < count; i++)
	{
		if (!lock_with_indexes(oids[i]))
			continue;
		foreach(cell, find_all_inheritors(oids[i], AccessShareLock, NULL))
			lock_with_indexes(lfirst_oid(cell));
	}
	lock_looked_into();
	PG_RETURN_VOID();
}

/* dp.lock_at_once(relation oid): whether it is there, and can be read without waiting for anybody */
Datum
dpsql_lock_at_once(PG_FUNCTION_ARGS)
{
	Oid			relation = PG_GETARG_OID(0);

	if (!ConditionalLockRelationOid(relation, AccessShareLock))
		PG_RETURN_BOOL(false);
	PG_RETURN_BOOL(SearchSysCacheExists1(RELOID, ObjectIdGetDatum(relation)));
}
