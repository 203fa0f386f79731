/*
 * explain.c
 *		What counts pages in memory is for those who may know what others read:
 *		EXPLAIN (BUFFERS), EXPLAIN (WAL), VACUUM (VERBOSE), ANALYZE (VERBOSE).
 *
 * The service session reads pages into shared buffers, where everybody's
 * statements find them.  Which pages it reads depends on protected rows: those of
 * a public table that a row joins, of a catalogue's index, of a long value.  The
 * option BUFFERS counts the pages that were in memory, those that left it, and
 * those that somebody read for the first time after a change; WAL counts the
 * images of the latter.  VERBOSE counts both for VACUUM, and from PostgreSQL 18
 * on for ANALYZE.  These counts are exact, so that one question at any
 * epsilon would tell a value.  Buffers belong to the whole cluster, and so does
 * this rule.
 */
#include "postgres.h"

#include "catalog/pg_authid.h"
#include "commands/defrem.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/parsenodes.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/builtins.h"

#include "dpsql.h"

static ProcessUtility_hook_type previous_utility = NULL;

static bool
may_know(void)
{
	return explain_buffers || superuser() || has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS);
}

static void
refuse(const char *command, const char *option)
{
	ereport(ERROR,
			(errcode(ERRCODE_DPSQL_PERMISSION),
			 errmsg("permission denied for %s (%s)", command, option),
			 errdetail("Which pages are in memory tells what private questions have read."),
			 errhint("Leave the option out, or ask a superuser for ALTER ROLE %s SET dp.explain_buffers = on; and connect again.",
					 quote_identifier(GetUserNameFromId(GetUserId(), false)))));
}

/* Whether an option is on; of several the last one counts. */
static bool
is_on(List *options, const char *name)
{
	ListCell   *cell;
	bool		on = false;

	foreach(cell, options)
	{
		DefElem    *option = lfirst_node(DefElem, cell);

		if (strcmp(option->defname, name) == 0)
			on = defGetBoolean(option);
	}
	return on;
}

static void
check_counters(PlannedStmt *statement, const char *text, bool read_only,
			  ProcessUtilityContext context, ParamListInfo parameters,
			  QueryEnvironment *environment, DestReceiver *receiver,
			  QueryCompletion *completion)
{
	if (IsA(statement->utilityStmt, ExplainStmt) && !may_know())
	{
		List	   *options = ((ExplainStmt *) statement->utilityStmt)->options;

		if (is_on(options, "buffers"))
			refuse("EXPLAIN", "BUFFERS");
		if (is_on(options, "wal"))
			refuse("EXPLAIN", "WAL");
		/* from PostgreSQL 18 on ANALYZE counts them by itself */
		if (PG_VERSION_NUM >= 180000 && is_on(options, "analyze"))
		{
			if (read_only)
				statement = copyObject(statement);
			read_only = false;
			options = ((ExplainStmt *) statement->utilityStmt)->options;
			((ExplainStmt *) statement->utilityStmt)->options =
				lappend(options, makeDefElem("buffers", (Node *) makeBoolean(false), -1));
		}
	}
	else if (IsA(statement->utilityStmt, VacuumStmt) && !may_know())
	{
		VacuumStmt *vacuum = (VacuumStmt *) statement->utilityStmt;

		if ((vacuum->is_vacuumcmd || PG_VERSION_NUM >= 180000) && is_on(vacuum->options, "verbose"))
			refuse(vacuum->is_vacuumcmd ? "VACUUM" : "ANALYZE", "VERBOSE");
	}
	(previous_utility ? previous_utility : standard_ProcessUtility)
		(statement, text, read_only, context, parameters, environment, receiver, completion);
}

void
explain_init(void)
{
	previous_utility = ProcessUtility_hook;
	ProcessUtility_hook = check_counters;
}
