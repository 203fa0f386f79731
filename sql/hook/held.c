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
 * kind takes one lock instead, which all readers of that kind hold.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/pg_cast.h"
#include "catalog/pg_class.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/sinval.h"
#include "utils/acl.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "compat.h"
#include "dpsql.h"
#include "service.h"

/* a lock on a hash, not on an object by its OID, which PostgreSQL may take as well */
#define BY_HASH 1

/* The object that stands for any of a catalog. */
#define ANY 0

/* So many objects of a catalog are locked one by one. */
#define MOST_CHANGED 64

/* The objects of one catalog that a transaction changed: OIDs of relations, hashes of others. */
typedef struct
{
	Oid			catalog;
	int			cache;			/* whose messages name the objects; -1: the cache of relations */
	uint32		objects[MOST_CHANGED];
	int			count;
} Changed;

static void
lock_object(Oid catalog, uint32 object, uint16 part, LOCKMODE mode, bool session)
{
	LOCKTAG		tag;

	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, catalog, object, part);
	LockAcquire(&tag, mode, session, false);
}

/* A service session reads: no mode of PostgreSQL's own commands on schemas conflicts but that of DROP. */
static void
hold(Oid catalog, uint32 object, uint16 part)
{
	lock_object(catalog, object, part, RowShareLock, true);
}

/* An enum type: its labels change under a lock of PostgreSQL's on the type. */
static void
hold_type(Oid type)
{
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
	hold(NamespaceRelationId, ANY, BY_HASH);
	hold(NamespaceRelationId, GetSysCacheHashValue1(NAMESPACEOID,
													ObjectIdGetDatum(RelationGetNamespace(relation))), BY_HASH);
	for (int i = 0; i < columns->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(columns, i);

		if (!column->attisdropped && column->atttypid >= FirstNormalObjectId)
			hold_type(column->atttypid);
	}
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

static void
wait_for_readers(const Changed *kind)
{
	uint16		part = kind->cache == -1 ? 0 : BY_HASH;

	if (kind->count > MOST_CHANGED)
		lock_object(kind->catalog, ANY, part, ExclusiveLock, false);
	for (int i = 0; i < kind->count && kind->count <= MOST_CHANGED; i++)
		lock_object(kind->catalog, kind->objects[i], part, ExclusiveLock, false);
}

/* Before the changes of a transaction become visible, by COMMIT or by COMMIT PREPARED. */
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
		!IsNormalProcessingMode())
		return;
	/* the messages of the last command are collected only now */
	if (!IsInParallelMode())
		CommandCounterIncrement();
	count = xactGetCommittedInvalidationMessages(&messages, &init_file);
	for (int i = 0; i < count; i++)
		note_message(kinds, lengthof(kinds), &messages[i]);
	for (int i = 0; i < lengthof(kinds); i++)
		wait_for_readers(&kinds[i]);
}

/* At server start: all processes inherit the callback. */
void
held_init(void)
{
	RegisterXactCallback(before_commit, NULL);
}
