/*
 * reads.c
 *		Who reads, whether what is read is still what was declared, and reading
 *		protected rows in a SERIALIZABLE transaction.
 *
 * There every row and index page that is read leaves a lock that anybody sees
 * in pg_locks.  A lock on the whole relation, taken before, covers them all.
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/xact.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "storage/predicate.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/snapmgr.h"

#include "dpsql.h"

PG_FUNCTION_INFO_V1(dpsql_caller);
PG_FUNCTION_INFO_V1(dpsql_fingerprint_now);
PG_FUNCTION_INFO_V1(dpsql_lock_reads);

/* dp.caller() */
Datum
dpsql_caller(PG_FUNCTION_ARGS)
{
	PG_RETURN_OID(asking_role());
}

/*
 * dp.fingerprint_now(objects oid[]): dp.fingerprint under a snapshot taken now,
 * also where the transaction keeps an older one.
 */
Datum
dpsql_fingerprint_now(PG_FUNCTION_ARGS)
{
	static SPIPlanPtr plan = NULL;
	Oid			type = OIDARRAYOID;
	Datum		objects = PG_GETARG_DATUM(0);
	MemoryContext context = CurrentMemoryContext;
	Snapshot	snapshot;
	bool		isnull;
	text	   *token;

	SPI_connect();
	if (plan == NULL)
	{
		plan = SPI_prepare("select dp.fingerprint($1)", 1, &type);
		if (plan == NULL || SPI_keepplan(plan) != 0)
			elog(ERROR, "dp.fingerprint cannot be prepared");
	}
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	if (SPI_execute_snapshot(plan, &objects, NULL, snapshot, InvalidSnapshot, true, false, 1) !=
		SPI_OK_SELECT || SPI_processed != 1)
		elog(ERROR, "dp.fingerprint gave no answer");
	objects = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
	if (isnull)
		elog(ERROR, "dp.fingerprint gave no answer");
	token = (text *) MemoryContextAlloc(context, VARSIZE_ANY(DatumGetPointer(objects)));
	memcpy(token, DatumGetPointer(objects), VARSIZE_ANY(DatumGetPointer(objects)));
	UnregisterSnapshot(snapshot);
	SPI_finish();
	PG_RETURN_TEXT_P(token);
}

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
