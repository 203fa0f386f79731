/*
 * seen.c
 *		What a transaction has seen of other servers (docs/shards.md, "One
 *		moment").
 *
 * A server shows one state for the whole of a transaction: that of the first
 * statement sent there.  Who reads with the user mapping of dp_executor is
 * dpsql alone, so that all such statements start here.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_class.h"
#include "executor/executor.h"
#include "foreign/fdwapi.h"
#include "foreign/foreign.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "dpsql.h"
#include "shards.h"

/* Of this transaction; lists in TopTransactionContext. */
Seen		shards;

/* what is executed now is no reading */
static bool quiet = false;

static ExecutorStart_hook_type previous_start = NULL;

static void
forget_shards(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PRE_PREPARE:
			/* before its owner looks for leaks */
			if (shards.snapshot != NULL)
				UnregisterSnapshotFromOwner(shards.snapshot, TopTransactionResourceOwner);
			shards.snapshot = NULL;
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			memset(&shards, 0, sizeof(shards));
			quiet = false;
			break;
		default:
			break;
	}
}

void
remember(List **list, Oid oid)
{
	MemoryContext context = MemoryContextSwitchTo(TopTransactionContext);

	*list = list_append_unique_oid(*list, oid);
	MemoryContextSwitchTo(context);
}

/* The user mappings by which the foreign tables of a statement are read. */
static List *
mappings_of(QueryDesc *query)
{
	List	   *found = NIL;
	ListCell   *cell;

	foreach(cell, query->plannedstmt->rtable)
	{
		RangeTblEntry *rte = (RangeTblEntry *) lfirst(cell);

		if (rte->rtekind == RTE_RELATION && rte->relkind == RELKIND_FOREIGN_TABLE &&
			IsTransactionState() && OidIsValid(rte->relid))
		{
			HeapTuple	tuple = SearchSysCache1(FOREIGNTABLEREL, ObjectIdGetDatum(rte->relid));

			if (HeapTupleIsValid(tuple))
			{
				ReleaseSysCache(tuple);
				found = lappend_oid(found, user_mapping(GetUserId(),
														GetForeignServerIdByRelId(rte->relid)));
			}
		}
	}
	return found;
}

static void
start_next(QueryDesc *query, int flags)
{
	if (previous_start)
		previous_start(query, flags);
	else
		standard_ExecutorStart(query, flags);
}

/*
 * Whatever reads a foreign table as dp_executor gives its server a snapshot.
 * Here postgres_fdw takes its connections, and says if one is lost: it may make
 * another one the next time, with a later snapshot.
 */
static void
start(QueryDesc *query, int flags)
{
	List	   *mappings = (flags & EXEC_FLAG_EXPLAIN_ONLY) == 0 ? mappings_of(query) : NIL;
	bool		met = false;
	ListCell   *cell;

	foreach(cell, mappings)
	{
		if (!quiet)
			remember(&shards.read, lfirst_oid(cell));
		met = met || list_member_oid(shards.met, lfirst_oid(cell));
	}
	if (!met)
	{
		start_next(query, flags);
		return;
	}
	PG_TRY();
	{
		start_next(query, flags);
	}
	PG_CATCH();
	{
		shards.lost = true;
		PG_RE_THROW();
	}
	PG_END_TRY();
}

/* Says whether what is executed from here on reads nothing; returns what was said before. */
bool
shards_quiet(bool now)
{
	bool		before = quiet;

	quiet = now;
	return before;
}

void
shards_init(void)
{
	previous_start = ExecutorStart_hook;
	ExecutorStart_hook = start;
	RegisterXactCallback(forget_shards, NULL);
}
