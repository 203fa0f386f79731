/*
 * reads.c
 *		Reading protected rows in a SERIALIZABLE transaction.
 *
 * There every row and index page that is read leaves a lock that anybody sees
 * in pg_locks.  A lock on the whole relation, taken before, covers them all.
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/xact.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "storage/predicate.h"
#include "utils/array.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/snapmgr.h"

PG_FUNCTION_INFO_V1(dpsql_lock_reads);

static void
lock_whole(Oid oid, Snapshot snapshot)
{
	Relation	relation = relation_open(oid, AccessShareLock);
	List	   *indexes = RelationGetIndexList(relation);
	ListCell   *cell;

	PredicateLockRelation(relation, snapshot);
	foreach(cell, indexes)
	{
		Relation	index = relation_open(lfirst_oid(cell), AccessShareLock);

		PredicateLockRelation(index, snapshot);
		relation_close(index, NoLock);
	}
	list_free(indexes);
	relation_close(relation, NoLock);
}

/* dp.lock_reads(relations oid[]): with their partitions and children */
Datum
dpsql_lock_reads(PG_FUNCTION_ARGS)
{
	Snapshot	snapshot = GetActiveSnapshot();
	Datum	   *oids;
	bool	   *nulls;
	int			count;

	if (!IsolationIsSerializable())
		PG_RETURN_VOID();
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(0), OIDOID, sizeof(Oid), true, TYPALIGN_INT,
					  &oids, &nulls, &count);
	for (int i = 0; i < count; i++)
	{
		ListCell   *cell;

		if (nulls[i])
			continue;
		foreach(cell, find_all_inheritors(DatumGetObjectId(oids[i]), AccessShareLock, NULL))
			lock_whole(lfirst_oid(cell), snapshot);
	}
	PG_RETURN_VOID();
}
