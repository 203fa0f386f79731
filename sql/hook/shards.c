/*
 * shards.c
 *		dp.meet_shards and dp.read_together: one moment for all servers that
 *		hold parts of a relation (docs/shards.md, "One moment").
 *
 * postgres_fdw reads each server in a REPEATABLE READ transaction of its own,
 * whose snapshot is taken by the first statement sent there and lives until
 * the local transaction ends.  Whoever writes through this server holds ROW
 * EXCLUSIVE on what he writes to until the other servers have committed.  So
 * while SHARE is held on a relation and all its parts, every transaction that
 * wrote to it has ended everywhere, and none begins to: snapshots that are
 * taken meanwhile, there and here, show all of it or nothing.
 *
 * That holds for snapshots taken here only.  What was read before is remembered
 * (seen.c), and a question that would meet an older snapshot is refused.
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/xact.h"
#include "fmgr.h"
#include "foreign/foreign.h"
#include "miscadmin.h"
#include "nodes/value.h"
#include "parser/parse_func.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"

#include "dpsql.h"
#include "service.h"
#include "shards.h"

PG_FUNCTION_INFO_V1(dpsql_meet_shards);
PG_FUNCTION_INFO_V1(dpsql_read_together);
PG_FUNCTION_INFO_V1(dpsql_failed_shard);

/*
 * Waits for locks while it holds none of them, so that no writer, in whatever
 * order he locks, ever waits in a circle with this.  Whoever has written and
 * then wants ACCESS EXCLUSIVE of the same relation does, because the question
 * has ACCESS SHARE of it: PostgreSQL tells him of a deadlock.
 */
static void
lock_all(List *relations)
{
	Oid			awaited = InvalidOid;
	ListCell   *cell;

	for (;;)
	{
		Oid			refused = InvalidOid;
		List	   *held = NIL;

		CHECK_FOR_INTERRUPTS();
		if (OidIsValid(awaited))
		{
			LockRelationOid(awaited, ShareLock);
			held = lappend_oid(held, awaited);
		}
		foreach(cell, relations)
		{
			if (lfirst_oid(cell) == awaited)
				continue;
			if (!ConditionalLockRelationOid(lfirst_oid(cell), ShareLock))
			{
				refused = lfirst_oid(cell);
				break;
			}
			held = lappend_oid(held, lfirst_oid(cell));
		}
		if (!OidIsValid(refused))
			return;
		foreach(cell, held)
			UnlockRelationOid(lfirst_oid(cell), ShareLock);
		awaited = refused;
	}
}

/* What this transaction changed itself, other servers show to its own connection only. */
static void
require_unchanged(List *relations)
{
	ListCell   *cell;

	foreach(cell, relations)
	{
		Relation	relation = relation_open(lfirst_oid(cell), NoLock);
		bool		changed = CheckRelationLockedByMe(relation, RowExclusiveLock, true);

		relation_close(relation, NoLock);
		if (changed)
			ereport(ERROR,
					(errcode(ERRCODE_DPSQL_NOT_ANSWERABLE),
					 errmsg("this transaction has changed or locked relation %s, which has parts on other servers",
							quote_identifier(get_rel_name(lfirst_oid(cell)))),
					 errhint("Ask in a transaction of its own.")));
	}
}

/*
 * A service session reads what is of one moment below dp.read_together, and so
 * in the moment's snapshot, whatever that of its transaction shows.
 */
static void
require_new(List *relations, List *parts)
{
	ListCell   *cell;

	if (IsolationUsesXactSnapshot() && !is_serving())
		ereport(ERROR,
				(errcode(ERRCODE_DPSQL_NOT_ANSWERABLE),
				 errmsg("relation %s has parts on several servers, which are read in READ COMMITTED transactions only",
						quote_identifier(get_rel_name(linitial_oid(relations)))),
				 errdetail("The snapshot of this transaction was taken before those of the other servers."),
				 errhint("BEGIN ISOLATION LEVEL READ COMMITTED, then ask again.")));
	foreach(cell, parts)
	{
		Part	   *part = (Part *) lfirst(cell);

		if (shards.snapshot != NULL || list_member_oid(shards.read, part->mapping))
			ereport(ERROR,
					(errcode(ERRCODE_DPSQL_NOT_ANSWERABLE),
					 errmsg("relation %s has parts on several servers, of which this transaction has read some already",
							quote_identifier(get_rel_name(linitial_oid(relations)))),
					 errdetail("A server shows one state for the whole of a transaction, but not the same one as the others."),
					 errhint("Ask in a transaction of its own.")));
	}
}

static bool
is_met(List *relations, List *parts)
{
	ListCell   *cell;

	if (shards.snapshot == NULL || shards.lost ||
		list_difference_oid(relations, shards.relations) != NIL)
		return false;
	foreach(cell, parts)
		if (!list_member_oid(shards.met, ((Part *) lfirst(cell))->mapping))
			return false;
	return true;
}

/* What is done for a common moment, step by step. */
typedef struct
{
	List	   *relations;		/* that have parts in several places and are written to from here */
	List	   *all;			/* with their parts */
	List	   *parts;			/* on other servers */
	List	   *probed;			/* those that were looked at */
	bool		locked;			/* all are, and nothing lets them go if this ends here */
} Meeting;

static void
take_locks(void *argument)
{
	Meeting    *meeting = argument;

	lock_all(meeting->all);
	meeting->locked = true;
}

/* Parts of these relations are written to, or changed, all the time. */
static void
locks_are_late(void *argument)
{
	Meeting    *meeting = argument;
	ListCell   *cell;

	/* the last lock came with the end of the time */
	if (meeting->locked)
		foreach(cell, meeting->all)
			UnlockRelationOid(lfirst_oid(cell), ShareLock);
	ereport(ERROR,
			(errcode(ERRCODE_DPSQL_SHARD),
			 errmsg("relation %s, which has parts on other servers, is written to by transactions that take long",
					quote_identifier(get_rel_name(linitial_oid(meeting->relations)))),
			 errdetail("The setting dp.shards_timeout allows %s: others who write wait meanwhile.",
					   time_allowed()),
			 errhint("Nothing was charged. Ask again when they have ended.")));
}

static void
snapshots_are_late(void *argument)
{
	Meeting    *meeting = argument;

	if (meeting->probed != NIL)
		refuse_late(meeting->parts);
	locks_are_late(argument);
}

static void
take_snapshots(void *argument)
{
	Meeting    *meeting = argument;
	ListCell   *cell;

	/* parts that came while it was waited for would have no lock */
	AcceptInvalidationMessages();
	if (list_difference_oid(with_parts(meeting->relations), meeting->all) != NIL)
		ereport(ERROR,
				(errcode(ERRCODE_DPSQL_CHANGED),
				 errmsg("a relation or a declaration of the question has changed meanwhile"),
				 errhint("Ask again.")));
	foreach(cell, meeting->parts)
	{
		Part	   *part = (Part *) lfirst(cell);

		if (!part->first)
			continue;
		/* before: its snapshot stays if this fails, there or on another server */
		remember(&shards.read, part->mapping);
		require_reached(meeting->parts, part);
		meeting->probed = lappend_oid(meeting->probed, part->relation);
	}
}

static void
meet_at_once(void *argument)
{
	Meeting    *meeting = argument;

	in_time(take_snapshots, snapshots_are_late, meeting);
	shards.snapshot = RegisterSnapshotOnOwner(GetLatestSnapshot(), TopTransactionResourceOwner);
}

/*
 * See the head of this file.  Gives the parts that were looked at for that.
 */
static List *
meet(List *relations)
{
	Meeting		meeting = {.relations = relations};
	ListCell   *cell;

	meeting.all = with_parts(relations);
	meeting.parts = foreign_parts(relations);
	if (is_met(meeting.all, meeting.parts))
		return NIL;
	require_new(relations, meeting.parts);
	require_unchanged(meeting.all);
	/* whatever takes long is done before others wait for the locks */
	foreach(cell, meeting.parts)
		if (((Part *) lfirst(cell))->first)
			require_reached_in_time(lfirst(cell), PROBE_CONNECT);
	in_time(take_locks, locks_are_late, &meeting);
	meeting.locked = false;
	holding(meeting.all, meet_at_once, &meeting);
	foreach(cell, meeting.all)
		remember(&shards.relations, lfirst_oid(cell));
	foreach(cell, meeting.parts)
		remember(&shards.met, ((Part *) lfirst(cell))->mapping);
	return meeting.probed;
}

static void
require_door(void)
{
	if (!below_door())
		ereport(ERROR,
				(errcode(ERRCODE_DPSQL_PERMISSION),
				 errmsg("other servers are read by functions of dpsql only"),
				 errhint("Ask a question: SELECT dp_count(*) FROM ...")));
}

/*
 * dp.meet_shards(relations oid[], together oid[]): finds out, without reading
 * a row, whether all servers that hold parts of relations can be read, and
 * takes snapshots of one moment of those "together".  Before the charge.
 */
Datum
dpsql_meet_shards(PG_FUNCTION_ARGS)
{
	List	   *together = oids_of(PG_GETARG_DATUM(1));
	List	   *probed;
	ListCell   *cell;

	require_door();
	probed = together == NIL ? NIL : meet(together);
	foreach(cell, foreign_parts(oids_of(PG_GETARG_DATUM(0))))
	{
		Part	   *part = (Part *) lfirst(cell);

		if (shards.snapshot == NULL || !list_member_oid(shards.met, part->mapping))
			remember(&shards.read, part->mapping);
		if (!list_member_oid(probed, part->relation))
			require_reached_in_time(part, PROBE_READ);
	}
	PG_RETURN_VOID();
}

/* dp.read_together(): what waits in the session, in the snapshots of the common moment */
Datum
dpsql_read_together(PG_FUNCTION_ARGS)
{
	Oid			reader;

	require_door();
	if (shards.snapshot == NULL)
		elog(ERROR, "no snapshots were taken of one moment");
	reader = LookupFuncName(list_make2(makeString("dp"), makeString("python_read_together")),
							0, NULL, false);
	PushActiveSnapshot(shards.snapshot);
	OidFunctionCall0(reader);
	PopActiveSnapshot();
	PG_RETURN_VOID();
}

/*
 * dp.failed_shard(relations oid[]): the server that does not answer any more,
 * if one of them does not; where several do not, one " or " the other.  A
 * connection that broke stays broken until the transaction ends, so that
 * nothing is read to find out.
 */
Datum
dpsql_failed_shard(PG_FUNCTION_ARGS)
{
	StringInfoData names;
	ListCell   *cell;

	require_door();
	initStringInfo(&names);
	foreach(cell, foreign_parts(oids_of(PG_GETARG_DATUM(0))))
	{
		Part	   *part = (Part *) lfirst(cell);

		if (part->first && !reached_in_time(part))
			appendStringInfo(&names, "%s%s", names.len == 0 ? "" : "\" or \"",
							 GetForeignServer(part->server)->servername);
	}
	if (names.len == 0)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(names.data));
}
