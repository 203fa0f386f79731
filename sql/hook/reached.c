/*
 * reached.c
 *		The parts of relations on other servers, and whether these can be read.
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "catalog/pg_user_mapping.h"
#include "executor/spi.h"
#include "foreign/fdwapi.h"
#include "foreign/foreign.h"
#include "miscadmin.h"
#include "nodes/plannodes.h"
#include "storage/lmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/plancache.h"
#include "utils/rel.h"
#include "utils/resowner.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "dpsql.h"
#include "shards.h"

/* The user mapping by which somebody reads a server, his own or everybody's; InvalidOid: none. */
Oid
user_mapping(Oid user, Oid server)
{
	Oid			found = GetSysCacheOid2(USERMAPPINGUSERSERVER, Anum_pg_user_mapping_oid,
										ObjectIdGetDatum(user), ObjectIdGetDatum(server));

	if (!OidIsValid(found))
		found = GetSysCacheOid2(USERMAPPINGUSERSERVER, Anum_pg_user_mapping_oid,
								ObjectIdGetDatum(InvalidOid), ObjectIdGetDatum(server));
	return found;
}

List *
oids_of(Datum array)
{
	List	   *found = NIL;
	Datum	   *oids;
	bool	   *nulls;
	int			count;

	deconstruct_array(DatumGetArrayTypeP(array), OIDOID, sizeof(Oid), true, TYPALIGN_INT,
					  &oids, &nulls, &count);
	for (int i = 0; i < count; i++)
		if (!nulls[i])
			found = list_append_unique_oid(found, DatumGetObjectId(oids[i]));
	list_sort(found, list_oid_cmp);
	return found;
}

/* Relations, each before its parts: the order in which writers lock them. */
List *
with_parts(List *relations)
{
	List	   *found = NIL;
	ListCell   *cell;

	foreach(cell, relations)
	{
		LockRelationOid(lfirst_oid(cell), AccessShareLock);
		found = list_concat_unique_oid(found,
									   find_all_inheritors(lfirst_oid(cell), AccessShareLock, NULL));
	}
	return found;
}

List *
foreign_parts(List *relations)
{
	List	   *parts = NIL;
	List	   *seen = NIL;
	ListCell   *cell;

	foreach(cell, with_parts(relations))
	{
		Part	   *part;

		if (get_rel_relkind(lfirst_oid(cell)) != RELKIND_FOREIGN_TABLE)
			continue;
		part = palloc0(sizeof(Part));
		part->relation = lfirst_oid(cell);
		part->server = GetForeignServerIdByRelId(part->relation);
		part->mapping = user_mapping(GetUserId(), part->server);
		part->first = !list_member_oid(seen, part->server);
		seen = list_append_unique_oid(seen, part->server);
		parts = lappend(parts, part);
	}
	return parts;
}

/*
 * Its columns of built-in types: executed.c lets no others be read without need.
 * Gives the first of them.
 */
static const char *
append_columns(StringInfo sql, Oid oid)
{
	Relation	relation = relation_open(oid, AccessShareLock);
	const char *first = NULL;

	for (int i = 0; i < RelationGetDescr(relation)->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(RelationGetDescr(relation), i);
		const char *name;

		if (column->attisdropped || column->atttypid >= FirstNormalObjectId)
			continue;
		name = quote_identifier(pstrdup(NameStr(column->attname)));
		appendStringInfo(sql, "%s%s", first == NULL ? " " : ", ", name);
		if (first == NULL)
			first = name;
	}
	relation_close(relation, NoLock);
	return first == NULL ? "ctid" : first;
}

/* Whether a plan is nothing but a statement that is sent away with all its conditions. */
static bool
is_sent(SPIPlanPtr plan)
{
	CachedPlan *cached = SPI_plan_get_cached_plan(plan);
	Plan	   *top;
	bool		sent;

	if (cached == NULL)
		return false;
	top = linitial_node(PlannedStmt, cached->stmt_list)->planTree;
	sent = IsA(top, ForeignScan) && top->qual == NIL;
	ReleaseCachedPlan(cached, NULL);	/* as SPI took it, of a plan that is not kept */
	return sent;
}

static SPIPlanPtr
prepared(const char *select, const char *condition)
{
	Oid			type = BOOLOID;
	SPIPlanPtr	plan = SPI_prepare_cursor(psprintf("%s %s", select, condition), 1, &type,
										  CURSOR_OPT_GENERIC_PLAN);

	if (plan == NULL)
		elog(ERROR, "a part cannot be read");
	return plan;
}

/*
 * Reads all columns of no row, by a plan for all values of $1, which is false:
 * no planner may see that there is nothing to do.  Where $1 stands alone it is
 * tested here, and the server is connected and begins a transaction, nothing
 * else.  Where a column is tested with it, the server gets the statement, takes
 * a snapshot and sees that no row can match.  LIMIT 0 is sent only if its costs
 * say so, which those of a part of one row do not.
 */
static void
probe(Part *part, Probe how)
{
	StringInfoData select;
	SPIPlanPtr	plan;
	Datum		no = BoolGetDatum(false);
	const char *column;

	initStringInfo(&select);
	appendStringInfoString(&select, "select");
	column = append_columns(&select, part->relation);
	appendStringInfo(&select, " from only %s",
					 quote_qualified_identifier(get_namespace_name(get_rel_namespace(part->relation)),
												get_rel_name(part->relation)));
	SPI_connect();
	if (how == PROBE_CONNECT)
		plan = prepared(select.data, "where $1");
	else
	{
		plan = prepared(select.data,
						psprintf("where case when $1 then %s is null else false end", column));
		if (!is_sent(plan))
		{
			/* a wrapper that sends no conditions takes no snapshot either */
			if (how == PROBE_SNAPSHOT)
				elog(ERROR, "nothing is sent to part %u", part->relation);
			plan = prepared(select.data, "limit 0");
		}
	}
	if (SPI_execute_plan(plan, &no, NULL, true, 0) != SPI_OK_SELECT)
		elog(ERROR, "part %u cannot be read", part->relation);
	SPI_finish();
}

/* Whether an error is this server's own end of the statement, which passes as it is. */
static bool
is_our_own(ErrorData *error)
{
	if (error->context != NULL && strstr(error->context, "remote SQL command") != NULL)
		return false;
	return ERRCODE_TO_CATEGORY(error->sqlerrcode) == ERRCODE_OPERATOR_INTERVENTION ||
		error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE ||
		error->sqlerrcode == ERRCODE_T_R_DEADLOCK_DETECTED;
}

/*
 * Probes in a subtransaction; false where the other server is the cause.
 * What it said goes into this server's log: no row was read.  What writers wait
 * for is let go first: to end the subtransaction can take long (in_time.c).
 */
static bool
reached(Part *part, Probe how)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	TimestampTz started = GetCurrentTimestamp();
	ErrorData  *volatile error = NULL;
	bool		outer;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	outer = shards_quiet(true);
	PG_TRY();
	{
		probe(part, how);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		/* first: whatever fails here, later readings are remembered */
		shards_quiet(outer);
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		part->spent = GetCurrentTimestamp() - started;
		let_go();
		RollbackAndReleaseCurrentSubTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	shards_quiet(outer);
	if (error == NULL)
	{
		part->spent = GetCurrentTimestamp() - started;
		return true;
	}
	if (!time_is_up() && is_our_own((ErrorData *) error))
		ReThrowError((ErrorData *) error);
	ereport(LOG_SERVER_ONLY,
			(errmsg("dpsql: part %s on server %s: %s", get_rel_name(part->relation),
					GetForeignServer(part->server)->servername,
					time_is_up() ? "no answer within dp.shards_timeout" : error->message),
			 error->detail ? errdetail_internal("%s", error->detail) : 0));
	return false;
}

static void
refuse(Part *part)
{
	ereport(ERROR,
			(errcode(ERRCODE_DPSQL_SHARD),
			 errmsg("server \"%s\", which holds parts of the relation, cannot be read",
					GetForeignServer(part->server)->servername),
			 errdetail("It does not answer, or lacks a table or column of part %s.",
					   quote_identifier(get_rel_name(part->relation))),
			 errhint("Nothing was charged. Ask again when it answers;"
					 " this server's log names the cause for the administrator.")));
}

/* Time is up: the server that took most of it is to blame. */
void
refuse_late(List *parts)
{
	Part	   *slowest = linitial(parts);
	ListCell   *cell;

	foreach(cell, parts)
		if (((Part *) lfirst(cell))->spent > slowest->spent)
			slowest = lfirst(cell);
	ereport(ERROR,
			(errcode(ERRCODE_DPSQL_SHARD),
			 errmsg("server \"%s\", which holds parts of the relation, did not answer in time",
					GetForeignServer(slowest->server)->servername),
			 errdetail("The setting dp.shards_timeout allows %s.", time_allowed()),
			 errhint("Nothing was charged. Ask again when it answers;"
					 " this server's log names the cause for the administrator.")));
}

void
require_reached(List *parts, Part *part)
{
	if (reached(part, PROBE_SNAPSHOT))
		return;
	if (time_is_up())
		refuse_late(parts);
	refuse(part);
}

/* One server, with a limit of its own. */
typedef struct
{
	Part	   *part;
	Probe		how;
	bool		reached;
} Attempt;

static void
attempt(void *argument)
{
	Attempt    *made = argument;

	made->reached = reached(made->part, made->how);
}

static void
attempt_late(void *argument)
{
	refuse_late(list_make1(((Attempt *) argument)->part));
}

void
require_reached_in_time(Part *part, Probe how)
{
	Attempt		made = {part, how, false};

	in_time(attempt, attempt_late, &made);
	if (!made.reached)
		refuse(part);
}

/* The same after the charge; says false where it is late, too. */
bool
reached_in_time(Part *part)
{
	Attempt		made = {part, PROBE_READ, false};

	in_time(attempt, NULL, &made);
	return made.reached;
}
