/*
 * planned.c
 *		dp.planned_rows(query): how many rows the planner expects.
 *
 * EXPLAIN is no statement for a STABLE function.  Nothing is executed here but
 * what planning itself evaluates, which the statement would when it is run.
 */
#include "postgres.h"

#include "fmgr.h"
#include "nodes/plannodes.h"
#include "parser/parser.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"

#include "dpsql.h"

PG_FUNCTION_INFO_V1(dpsql_planned_rows);

Datum
dpsql_planned_rows(PG_FUNCTION_ARGS)
{
	char	   *query = text_to_cstring(PG_GETARG_TEXT_PP(0));
	List	   *parsed = pg_parse_query(query);
	List	   *queries;
	PlannedStmt *plan;

	if (list_length(parsed) != 1)
		elog(ERROR, "dp.planned_rows takes one statement");
	queries = pg_analyze_and_rewrite_fixedparams(linitial_node(RawStmt, parsed), query, NULL, 0, NULL);
	if (list_length(queries) != 1 || linitial_node(Query, queries)->commandType != CMD_SELECT)
		elog(ERROR, "dp.planned_rows takes a SELECT");
	plan = pg_plan_query(linitial_node(Query, queries), query, 0, NULL);
	PG_RETURN_FLOAT8(plan->planTree->plan_rows);
}
