/*
 * version.c
 *		The version of the catalogue and of declarations that a snapshot shows.
 *
 * Sessions keep what they found about relations until it changes.  PostgreSQL
 * tells them of a change an instant after new snapshots show it, which is too
 * late for what reads protected rows.  So each transaction that changed the
 * catalogue, or a table with the trigger dp.tell_sessions, increments "begun"
 * before its changes are visible, and "ended" afterwards:
 *
 * - While both are equal, all changes so far are visible.  A snapshot that is
 *	 taken then shows version "begun".
 * - A later snapshot shows the same version if "begun" is still the same.
 *
 * A transaction that is rolled back after the first increment makes a version
 * that is like the one before.  There is no version, and nothing is kept,
 * without the library in shared_preload_libraries, on a standby, and in a
 * transaction that writes.
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/index.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "commands/trigger.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "tcop/utility.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "dpsql.h"

PG_FUNCTION_INFO_V1(dpsql_catalogue_version);
PG_FUNCTION_INFO_V1(dpsql_tell_sessions);

/* In shared memory.  Both begin at 1, so that 0 is no version. */
typedef struct
{
	pg_atomic_uint64 begun;
	pg_atomic_uint64 ended;
} Versions;

static Versions *versions = NULL;
/*
 * This transaction: whether it certainly changed the catalogue or declarations,
 * relations that it changed, which may be busy tables, and whether it is
 * counted in "begun" and not yet in "ended".
 */
static bool changed = false;
#define MOST_RELATIONS 32
static Oid	relations[MOST_RELATIONS];
static int	relation_count = 0;
static bool counted = false;

/* A version and the xmax of a snapshot that showed it. */
static struct
{
	uint64		version;
	TransactionId xmax;
} shown;

static ProcessUtility_hook_type next_utility = NULL;

/*
 * Caches of objects that count.  Columns, indexes, triggers, foreign keys,
 * inheritance, statistics and rules count as changes of their relations.
 */
static const int told[] = {
	AMOPOPID, AMPROCNUM, AUTHMEMROLEMEM, AUTHOID, CASTSOURCETARGET, CLAOID, COLLOID, CONSTROID,
	ENUMOID, FOREIGNDATAWRAPPEROID, FOREIGNSERVEROID, FOREIGNTABLEREL, NAMESPACEOID, OPEROID,
	OPFAMILYOID, PROCOID, TYPEOID, USERMAPPINGOID,
};

/*
 * What the ledger writes for each question, and autovacuum therefore sees to
 * every minute: nothing that is kept depends on these tables, which nobody but
 * an administrator can change, and all sessions would start afresh at once.
 * Of other tables autovacuum counts: it runs functions of owners, in indexes
 * and statistics, and these can change anything of theirs.
 */
static const char *const busy_tables[] = {
	"answer", "answer_text", "covered", "failure", "role_total", "root_total", "spend",
};

/* Whether a relation is one of these tables, or an index or a TOAST table of one. */
static bool
is_busy(Oid relation)
{
	Oid			schema = get_namespace_oid(DPSQL_SCHEMA, true);
	char	   *name = get_rel_name(relation);

	if (!OidIsValid(schema) || name == NULL)
		return false;
	if (get_rel_relkind(relation) == RELKIND_INDEX)
	{
		relation = IndexGetRelation(relation, true);
		name = get_rel_name(relation);
	}
	/* an index of a TOAST table is named after the table too */
	if (name != NULL && get_rel_relkind(relation) == RELKIND_TOASTVALUE)
	{
		unsigned int owner;

		if (sscanf(name, "pg_toast_%u", &owner) != 1)
			return false;
		relation = (Oid) owner;
		name = get_rel_name(relation);
	}
	if (name == NULL || get_rel_namespace(relation) != schema)
		return false;
	for (int i = 0; i < lengthof(busy_tables); i++)
	{
		if (strcmp(name, busy_tables[i]) == 0)
			return true;
	}
	return false;
}

/*
 * A backend handles the messages of its own changes after each command, when
 * its transaction has a number.  No cache may be read here.
 */
static void
relation_changed(Datum unused, Oid relation)
{
	if (changed || !TransactionIdIsValid(GetTopTransactionIdIfAny()))
		return;
	for (int i = 0; i < relation_count; i++)
	{
		if (relations[i] == relation)
			return;
	}
	if (!OidIsValid(relation) || relation_count == MOST_RELATIONS)	/* InvalidOid: any */
		changed = true;
	else
		relations[relation_count++] = relation;
}

static void
object_changed(Datum unused, int cache, uint32 hash)
{
	if (TransactionIdIsValid(GetTopTransactionIdIfAny()))
		changed = true;
}

/* Whether the transaction changed anything that sessions keep. */
static bool
has_changed(void)
{
	for (int i = 0; !changed && i < relation_count; i++)
		changed = !is_busy(relations[i]);
	return changed;
}

static void
begin_change(void)
{
	if (counted)
		return;
	pg_atomic_fetch_add_u64(&versions->begun, 1);
	counted = true;
}

static void
at_transaction(XactEvent event, void *unused)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			if (versions == NULL || !TransactionIdIsValid(GetTopTransactionIdIfAny()))
				break;
			/* the messages of the last command are handled only now */
			if (!IsInParallelMode())
				CommandCounterIncrement();
			if (has_changed())
				begin_change();
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:	/* its changes are counted by COMMIT PREPARED */
			if (counted)
				pg_atomic_fetch_add_u64(&versions->ended, 1);
			changed = counted = false;
			relation_count = 0;
			break;
		default:
			break;
	}
}

/*
 * Count each COMMIT PREPARED: another transaction made the changes.  In a
 * transaction block, where "ended" would wait for its end, it is an error.
 */
static void
count_prepared(PlannedStmt *statement, const char *text, bool read_only,
			   ProcessUtilityContext context, ParamListInfo parameters,
			   QueryEnvironment *environment, DestReceiver *receiver, QueryCompletion *completion)
{
	Node	   *command = statement->utilityStmt;

	if (versions != NULL && IsA(command, TransactionStmt) &&
		context == PROCESS_UTILITY_TOPLEVEL && !IsTransactionBlock() && !IsSubTransaction() &&
		((TransactionStmt *) command)->kind == TRANS_STMT_COMMIT_PREPARED)
		begin_change();
	(next_utility ? next_utility : standard_ProcessUtility)
		(statement, text, read_only, context, parameters, environment, receiver, completion);
}

static Size
area_size(void)
{
	return sizeof(Versions);
}

static void
start(void *memory, bool found)
{
	versions = memory;
	if (found)
		return;
	pg_atomic_init_u64(&versions->begun, 1);
	pg_atomic_init_u64(&versions->ended, 1);
}

/* At server start: all processes inherit the callbacks. */
void
version_init(void)
{
	share((SharedArea) {"dpsql versions", area_size, start});
	next_utility = ProcessUtility_hook;
	ProcessUtility_hook = count_prepared;
	RegisterXactCallback(at_transaction, NULL);
	CacheRegisterRelcacheCallback(relation_changed, (Datum) 0);
	for (int i = 0; i < lengthof(told); i++)
		CacheRegisterSyscacheCallback(told[i], object_changed, (Datum) 0);
}

static bool
same_numbers(const TransactionId *first, int64 n, const TransactionId *second, int64 m)
{
	return n == m && memcmp(first, second, n * sizeof(TransactionId)) == 0;
}

/* Whether two snapshots show the same. */
static bool
show_the_same(Snapshot one, Snapshot other)
{
	return !one->suboverflowed && !other->suboverflowed &&
		one->xmin == other->xmin && one->xmax == other->xmax &&
		same_numbers(one->xip, one->xcnt, other->xip, other->xcnt) &&
		same_numbers(one->subxip, one->subxcnt, other->subxip, other->subxcnt);
}

/* The version that a snapshot shows, or 0 where that is not known. */
uint64
catalogue_version(Snapshot snapshot)
{
	uint64		ended,
				begun;
	Snapshot	latest;

	if (versions == NULL || snapshot->snapshot_type != SNAPSHOT_MVCC ||
		snapshot->takenDuringRecovery || RecoveryInProgress() ||
		TransactionIdIsValid(GetTopTransactionIdIfAny()))
		return 0;
	pg_memory_barrier();		/* the snapshot was taken before this */
	ended = pg_atomic_read_u64(&versions->ended);
	pg_memory_barrier();		/* an equal "begun" that is read later has not moved in between */
	begun = pg_atomic_read_u64(&versions->begun);
	/* xmax only grows: this snapshot is later than the one that showed the version */
	if (shown.version == begun && TransactionIdFollows(snapshot->xmax, shown.xmax))
		return begun;
	if (ended != begun)
		return 0;
	latest = GetLatestSnapshot();
	pg_memory_barrier();
	if (pg_atomic_read_u64(&versions->begun) != begun)
		return 0;
	shown.version = begun;
	shown.xmax = latest->xmax;
	return show_the_same(snapshot, latest) ? begun : 0;
}

/* dp.catalogue_version() */
Datum
dpsql_catalogue_version(PG_FUNCTION_ARGS)
{
	uint64		version = catalogue_version(GetActiveSnapshot());

	if (version == 0)
		PG_RETURN_NULL();
	PG_RETURN_INT64((int64) version);
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
