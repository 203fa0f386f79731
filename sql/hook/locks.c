/*
 * locks.c
 *		What a call locks, when, and for how long.
 *
 * Analysis and reading lock relations until the transaction ends, which the
 * asker can put off for ever, while owners who want to alter a relation wait.
 * So what only reads runs in a subtransaction that is always rolled back,
 * which lets go of the locks that were taken in it, and of nothing else: rows
 * and declarations stay as they are while the call runs.
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/xact.h"
#include "catalog/pg_inherits.h"
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
 * dp.lock_members(relations oid[]): locks relations, partitions, children and
 * indexes as analysis and the planner do.  What has to be waited for is so
 * before the charge.  A relation that is gone is left out.
 */
Datum
dpsql_lock_members(PG_FUNCTION_ARGS)
{
	int			count;
	Oid		   *oids = objects_of(PG_GETARG_DATUM(0), &count);
	ListCell   *cell;

	for (int i = 0; i < count; i++)
	{
		LockRelationOid(oids[i], AccessShareLock);
		if (!SearchSysCacheExists1(RELOID, ObjectIdGetDatum(oids[i])))
			continue;
		foreach(cell, find_all_inheritors(oids[i], AccessShareLock, NULL))
		{
			Relation	member = relation_open(lfirst_oid(cell), AccessShareLock);
			ListCell   *index;

			foreach(index, RelationGetIndexList(member))
				LockRelationOid(lfirst_oid(index), AccessShareLock);
			relation_close(member, NoLock);
		}
	}
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
