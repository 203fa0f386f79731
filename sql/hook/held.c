/*
 * held.c
 *		Hold back what would change the catalogue of a relation while a question reads it.
 *
 * Many commands change what a relation is without waiting for its readers:
 * CREATE INDEX, CREATE STATISTICS, GRANT, REVOKE, INHERIT and ATTACH PARTITION,
 * and what happens to its schema and types.  Rows decide how many statements a
 * question needs: a count that does not fit into bigint is counted again in
 * numeric.  A second statement that is planned after such a command locks an
 * index that the first one did not, or fails, or reads another relation of the
 * same name, and so others would see whether there was a second statement.
 *
 * So a service session locks, beside each relation that it will read, what the
 * catalogue says about the relation, its schema and its types; and a transaction
 * takes the opposite lock on all that it has changed before its changes become
 * visible.  It waits there until the questions end, as ALTER TABLE does.
 *
 * The locks are those of database objects, which for relations PostgreSQL itself
 * does not use.  Schemas and types are named by the hash that tells caches of a
 * change, a relation by its OID.  A transaction that changed many objects of one
 * kind takes one lock instead, which all readers of that kind hold.  It waits for that
 * lock outside of the queue: questions over other relations go on meanwhile.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/pg_cast.h"
#include "catalog/pg_class.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "storage/sinval.h"
#include "utils/acl.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "dpsql.h"
#include "service.h"

PG_FUNCTION_INFO_V1(dpsql_hold_types);

/* a lock on a hash, not on an object by its OID, which PostgreSQL may take as well */
#define BY_HASH 1

/* The object that stands for any of a catalog. */
#define ANY 0

/* So many objects of a catalog are locked one by one. */
#define MOST_CHANGED 256

/* Milliseconds that a transaction which changed more waits for all questions, if lock_timeout is not less. */
#define LONGEST_WAIT (60 * 1000)
#define PAUSE 10

/* The objects of one catalog that a transaction changed: OIDs of relations, hashes of others. */
typedef struct
{
	Oid			catalog;
	int			cache;			/* whose messages name the objects; -1: the cache of relations */
	uint32		objects[MOST_CHANGED];
	int			count;
} Changed;

/* Lock an object; false if that would have to wait, and must not. */
static bool
lock_object(Oid catalog, uint32 object, uint16 part, LOCKMODE mode, bool session, bool at_once)
{
	LOCKTAG		tag;

	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, catalog, object, part);
	return LockAcquire(&tag, mode, session, at_once) != LOCKACQUIRE_NOT_AVAIL;
}

/* A service session reads: no mode of PostgreSQL's own commands on schemas conflicts but that of DROP. */
static void
hold(Oid catalog, uint32 object, uint16 part)
{
	lock_object(catalog, object, part, RowShareLock, true, false);
}

static void
hold_schema(Oid schema)
{
	hold(NamespaceRelationId, ANY, BY_HASH);
	hold(NamespaceRelationId, GetSysCacheHashValue1(NAMESPACEOID, ObjectIdGetDatum(schema)), BY_HASH);
}

/*
 * A type that is not built in, with its schema and the type that it is over.  The
 * labels of an enum change under a lock of PostgreSQL's on the type.
 */
static void
hold_type(Oid type)
{
	HeapTuple	tuple = type < FirstNormalObjectId ? NULL :
		SearchSysCache1(TYPEOID, ObjectIdGetDatum(type));
	FormData_pg_type form;

	if (!HeapTupleIsValid(tuple))
		return;
	form = *(Form_pg_type) GETSTRUCT(tuple);
	ReleaseSysCache(tuple);
	hold_schema(form.typnamespace);
	hold_type(form.typbasetype);
	hold_type(form.typelem);
	hold(TypeRelationId, type, 0);
	hold(TypeRelationId, ANY, BY_HASH);
	hold(CastRelationId, ANY, BY_HASH);
	hold(TypeRelationId, GetSysCacheHashValue1(TYPEOID, ObjectIdGetDatum(type)), BY_HASH);
	hold(CastRelationId, GetSysCacheHashValue2(CASTSOURCETARGET, ObjectIdGetDatum(type),
											   ObjectIdGetDatum(TEXTOID)), BY_HASH);
	hold(CastRelationId, GetSysCacheHashValue2(CASTSOURCETARGET, ObjectIdGetDatum(TEXTOID),
											   ObjectIdGetDatum(type)), BY_HASH);
}

/*
 * Hold, until release_kept_locks, what the catalogue says about a relation that a
 * service session will read.
 */
void
hold_catalogue(Relation relation)
{
	TupleDesc	columns = RelationGetDescr(relation);

	if (!is_serving())
		return;
	hold(RelationRelationId, ANY, 0);
	hold(RelationRelationId, RelationGetRelid(relation), 0);
	hold_schema(RelationGetNamespace(relation));
	for (int i = 0; i < columns->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(columns, i);

		if (!column->attisdropped)
			hold_type(column->atttypid);
	}
}

/*
 * dp.hold_types(objects oid[]): holds, until release_kept_locks, those of some objects
 * that are types.  A question names types that no column has: a second statement
 * would not find one that was renamed since the first.
 */
Datum
dpsql_hold_types(PG_FUNCTION_ARGS)
{
	int			count;
	Oid		   *oids = objects_of(PG_GETARG_DATUM(0), &count);

	for (int i = 0; i < count && is_serving(); i++)
		hold_type(oids[i]);
	PG_RETURN_VOID();
}

/* Whether a role other than the owner has the privilege to run VACUUM on a relation. */
static bool
others_maintain(Relation relation)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(RelationGetRelid(relation)));
	bool		null;
	bool		found = false;
	Datum		datum;

	if (!HeapTupleIsValid(tuple))
		return true;
	datum = SysCacheGetAttr(RELOID, tuple, Anum_pg_class_relacl, &null);
	if (!null)
	{
		Acl		   *acl = DatumGetAclP(datum);

		for (int i = 0; i < ACL_NUM(acl); i++)
		{
			AclItem    *item = &ACL_DAT(acl)[i];

			found = found || ((ACLITEM_GET_PRIVS(*item) & COMPAT_ACL_MAINTAIN) != 0 &&
							  item->ai_grantee != relation->rd_rel->relowner);
		}
	}
	ReleaseSysCache(tuple);
	return found;
}

/*
 * Keep VACUUM away from a relation until release_kept_locks, unless those who may
 * run it own all the others that are read: VACUUM leaves a page alone that a
 * question looks at for a while, because protected rows join a row there, and
 * everybody sees later which page that was.  Writers wait as well.
 */
void
hold_vacuum(Relation relation, List *others)
{
	bool		trusted = !others_maintain(relation);
	ListCell   *cell;

	if (!is_serving())
		return;
	foreach(cell, others)
	{
		if (SearchSysCacheExists1(RELOID, ObjectIdGetDatum(lfirst_oid(cell))))
			trusted = trusted && compat_owns(lfirst_oid(cell), relation->rd_rel->relowner);
	}
	if (!trusted)
		LockRelationIdForSession(&relation->rd_lockInfo.lockRelId, ShareLock);
}

static void
add_changed(Changed *changed, uint32 object)
{
	for (int i = 0; i < Min(changed->count, MOST_CHANGED); i++)
	{
		if (changed->objects[i] == object)
			return;
	}
	if (changed->count < MOST_CHANGED)
		changed->objects[changed->count] = object;
	changed->count++;
}

/* A relation that is locked exclusively has no readers, as one that the transaction made. */
static void
note_message(Changed *kinds, int kind_count, const SharedInvalidationMessage *message)
{
	for (int i = 0; i < kind_count; i++)
	{
		Changed    *kind = &kinds[i];

		if (kind->cache == -1)
		{
			if (message->id == SHAREDINVALRELCACHE_ID && message->rc.dbId == MyDatabaseId &&
				message->rc.relId >= FirstNormalObjectId &&
				!CheckRelationOidLockedByMe(message->rc.relId, AccessExclusiveLock, true))
				add_changed(kind, message->rc.relId);
		}
		else if (message->id == kind->cache && message->cc.dbId == MyDatabaseId)
			add_changed(kind, message->cc.hashValue);
	}
}

/*
 * Wait until no question reads anything of a catalog.  A lock that is waited for in the
 * queue would let no new question begin.
 */
static void
wait_for_all_readers(Oid catalog, uint16 part)
{
	int			longest = LockTimeout > 0 ? Min(LockTimeout, LONGEST_WAIT) : LONGEST_WAIT;
	TimestampTz until = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), longest);

	while (!lock_object(catalog, ANY, part, ExclusiveLock, false, true))
	{
		CHECK_FOR_INTERRUPTS();
		if (GetCurrentTimestamp() > until)
			ereport(ERROR,
					(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					 errmsg("private questions read relations of this database all the time"),
					 errdetail("A transaction that changed more than %d relations, schemas, types or casts waits until none is read.", MOST_CHANGED),
					 errhint("Run it again, or change fewer in one transaction.")));
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, PAUSE, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
	}
}

/* A prepared transaction keeps its locks: it must not keep every question waiting. */
static void
wait_for_readers(const Changed *kind, bool prepares)
{
	uint16		part = kind->cache == -1 ? 0 : BY_HASH;

	if (kind->count <= MOST_CHANGED)
	{
		for (int i = 0; i < kind->count; i++)
			lock_object(kind->catalog, kind->objects[i], part, ExclusiveLock, false, false);
		return;
	}
	if (prepares)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("a transaction that changed more than %d relations, schemas, types or casts cannot be prepared", MOST_CHANGED),
				 errdetail("Until it is committed no private question could read anything."),
				 errhint("COMMIT it, or change fewer in one transaction.")));
	wait_for_all_readers(kind->catalog, part);
}

/*
 * Before the changes of a transaction become visible, by COMMIT or by COMMIT PREPARED.
 *
 * Autovacuum does not wait: hold_vacuum keeps it away from the relations of others, and a
 * question that waits there for its end would wait for one that waits for the question.
 */
static void
before_commit(XactEvent event, void *unused)
{
	SharedInvalidationMessage *messages;
	bool		init_file;
	int			count;
	Changed		kinds[] = {
		{RelationRelationId, -1},
		{NamespaceRelationId, NAMESPACEOID},
		{TypeRelationId, TYPEOID},
		{CastRelationId, CASTSOURCETARGET},
	};

	if ((event != XACT_EVENT_PRE_COMMIT && event != XACT_EVENT_PRE_PREPARE) ||
		!TransactionIdIsValid(GetTopTransactionIdIfAny()) || is_serving() ||
		compat_is_autovacuum() ||
		!IsNormalProcessingMode())
		return;
	/* the messages of the last command are collected only now */
	if (!IsInParallelMode())
		CommandCounterIncrement();
	count = xactGetCommittedInvalidationMessages(&messages, &init_file);
	for (int i = 0; i < count; i++)
		note_message(kinds, lengthof(kinds), &messages[i]);
	for (int i = 0; i < lengthof(kinds); i++)
		wait_for_readers(&kinds[i], event == XACT_EVENT_PRE_PREPARE);
}

/* At server start: all processes inherit the callback. */
void
held_init(void)
{
	RegisterXactCallback(before_commit, NULL);
}
