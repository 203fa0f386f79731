/*
 * state.c
 *		Whether anything that is said about relations may have changed.
 *
 * PostgreSQL tells every session which of its caches are out of date when a
 * transaction that changed the catalogue commits, before the client of that
 * transaction hears that it is done.  dp.tell_sessions makes changes of the
 * tables of the extension heard in the same way.  Here they are only counted:
 * while the count stands still, nothing has changed that was committed before
 * the question came.
 *
 * A change is seen by new snapshots an instant before it is told.  In this
 * instant the count is late, so whatever reads protected rows compares the
 * fingerprint of its relations in its own snapshot; see dpsql/engine/facts.py.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "fmgr.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "dpsql.h"
#include "service.h"

PG_FUNCTION_INFO_V1(dpsql_catalogue_state);
PG_FUNCTION_INFO_V1(dpsql_fingerprint_known);
PG_FUNCTION_INFO_V1(dpsql_snapshot_is_new);
PG_FUNCTION_INFO_V1(dpsql_tell_sessions);

static int64 changes = 0;		/* 0: nobody asked yet */

/*
 * What has no relation behind it that would be told.  Columns, indexes,
 * triggers, foreign keys, inheritance, statistics and rules are told as
 * changes of their relations.
 */
static const int told[] = {
	AMOPOPID, AMPROCNUM, AUTHMEMROLEMEM, AUTHOID, CASTSOURCETARGET, CLAOID, COLLOID, CONSTROID,
	ENUMOID, FOREIGNSERVEROID, FOREIGNTABLEREL, NAMESPACEOID, OPEROID, OPFAMILYOID, PROCOID, TYPEOID,
	USERMAPPINGOID,
};

/*
 * What the ledger writes for each question, and autovacuum therefore sees to
 * every minute: nothing that is said about relations depends on these tables,
 * and all sessions would look at the catalogue again at once.
 */
static const char *const busy_tables[] = {
	"answer", "answer_text", "covered", "failure", "role_total", "root_total", "spend",
};
#define MOST_BUSY 64			/* with indexes and TOAST tables */
static Oid	busy[MOST_BUSY];
static int	busy_count = 0;

/* Tokens of sets of objects, all of one count of changes. */
#define MOST_KNOWN 64
static struct
{
	MemoryContext memory;
	int64		state;
	int			count;
	struct
	{
		Oid		   *objects;
		int			count;
		char	   *text;
	}			tokens[MOST_KNOWN];
} known;

static void
relation_changed(Datum unused, Oid relation)
{
	for (int i = 0; i < busy_count; i++)
	{
		if (busy[i] == relation)	/* InvalidOid: any relation */
			return;
	}
	changes++;
}

static void
object_changed(Datum unused, int cache, uint32 hash)
{
	changes++;
}

/* Remember a busy table with what belongs to it. */
static void
note_busy(Oid oid)
{
	Relation	relation = table_open(oid, AccessShareLock);
	List	   *parts = lappend_oid(RelationGetIndexList(relation), oid);
	Oid			toast = relation->rd_rel->reltoastrelid;
	ListCell   *cell;

	table_close(relation, AccessShareLock);
	foreach(cell, parts)
	{
		if (busy_count < MOST_BUSY)
			busy[busy_count++] = lfirst_oid(cell);
	}
	if (OidIsValid(toast))
		note_busy(toast);
}

static void
find_busy(void)
{
	Oid			schema = get_namespace_oid(DPSQL_SCHEMA, true);

	busy_count = 0;
	for (int i = 0; OidIsValid(schema) && i < lengthof(busy_tables); i++)
	{
		Oid			oid = get_relname_relid(busy_tables[i], schema);

		if (OidIsValid(oid))
			note_busy(oid);
	}
}

/*
 * The count of changes, or 0 where it says nothing: in a transaction that
 * changed something itself or keeps an old snapshot, and on a standby.
 */
static int64
catalogue_state(void)
{
	if (changes == 0)
	{
		find_busy();
		changes = 1;
		CacheRegisterRelcacheCallback(relation_changed, (Datum) 0);
		for (int i = 0; i < lengthof(told); i++)
			CacheRegisterSyscacheCallback(told[i], object_changed, (Datum) 0);
	}
	/* a service session takes its snapshot when a question comes */
	if ((IsolationUsesXactSnapshot() && !is_serving()) ||
		TransactionIdIsValid(GetTopTransactionIdIfAny()) ||
		RecoveryInProgress())
		return 0;
	AcceptInvalidationMessages();
	return changes;
}

/* dp.catalogue_state() */
Datum
dpsql_catalogue_state(PG_FUNCTION_ARGS)
{
	int64		state = catalogue_state();

	if (state == 0)
		PG_RETURN_NULL();
	PG_RETURN_INT64(state);
}

static bool
same_numbers(const TransactionId *first, int64 n, const TransactionId *second, int64 m)
{
	return n == m && memcmp(first, second, n * sizeof(TransactionId)) == 0;
}

/*
 * dp.snapshot_is_new(): whether the caller's snapshot shows all that one taken
 * now shows, and so all that was counted before.
 */
Datum
dpsql_snapshot_is_new(PG_FUNCTION_ARGS)
{
	Snapshot	mine = GetActiveSnapshot();
	Snapshot	latest = GetLatestSnapshot();

	PG_RETURN_BOOL(!mine->suboverflowed && !latest->suboverflowed &&
				   mine->xmin == latest->xmin && mine->xmax == latest->xmax &&
				   same_numbers(mine->xip, mine->xcnt, latest->xip, latest->xcnt) &&
				   same_numbers(mine->subxip, mine->subxcnt, latest->subxip, latest->subxcnt));
}

static void
remember(int64 state, const Oid *oids, int count, const char *text)
{
	MemoryContext context;
	int			place;

	if (known.memory == NULL)
		known.memory = AllocSetContextCreate(TopMemoryContext, "dpsql tokens",
											 ALLOCSET_DEFAULT_SIZES);
	if (known.state != state || known.count == MOST_KNOWN)
	{
		known.count = 0;
		MemoryContextReset(known.memory);
		known.state = state;
	}
	context = MemoryContextSwitchTo(known.memory);
	place = known.count;
	known.tokens[place].objects = palloc((count + 1) * sizeof(Oid));
	memcpy(known.tokens[place].objects, oids, count * sizeof(Oid));
	known.tokens[place].count = count;
	known.tokens[place].text = pstrdup(text);
	known.count++;
	MemoryContextSwitchTo(context);
}

/*
 * dp.fingerprint_known(objects oid[]): the token for showing what was paid for.
 *
 * It is that of the newest state of which this session was told, so it can be
 * late by the instant between the commit of a change and its telling: an
 * answer that is found by it would have been found by whoever asked before the
 * change, and was paid for by who asks now.  It shows nothing that he was not
 * shown already, or could have been (PRIVACY.md sections 2 (b) and 7).  What
 * is asked beside it as of now: the schemas' privileges below, the budget and
 * the lifetime of the answer (dp.ledger_peek).
 *
 * The snapshot is taken after the count: what was counted is in it, and what
 * is not in it will be counted.
 */
Datum
dpsql_fingerprint_known(PG_FUNCTION_ARGS)
{
	int64		state = catalogue_state();
	Datum		objects = PG_GETARG_DATUM(0);
	int			count;
	Oid		   *oids = objects_of(objects, &count);
	Snapshot	snapshot;
	char	   *text;

	if (state == 0)
		return declared_token(declared_state(objects, oids, count, GetActiveSnapshot()), oids, count);
	for (int i = 0; known.state == state && i < known.count; i++)
	{
		if (known.tokens[i].count == count &&
			memcmp(known.tokens[i].objects, oids, count * sizeof(Oid)) == 0)
			return declared_token(known.tokens[i].text, oids, count);
	}
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	text = declared_state(objects, oids, count, snapshot);
	UnregisterSnapshot(snapshot);
	remember(state, oids, count, text);
	return declared_token(text, oids, count);
}

/* The trigger of tables whose rows say something about relations. */
Datum
dpsql_tell_sessions(PG_FUNCTION_ARGS)
{
	if (!CALLED_AS_TRIGGER(fcinfo))
		elog(ERROR, "dp.tell_sessions is a trigger");
	CacheInvalidateRelcache(((TriggerData *) fcinfo->context)->tg_relation);
	PG_RETURN_POINTER(NULL);
}
