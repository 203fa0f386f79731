/*
 * intercept.c
 *		Finds, in every analysed statement, the queries that hold a private
 *		aggregate and has them replaced.
 *
 * post_parse_analyze_hook runs for whatever a client, a driver, PL/pgSQL, an
 * SQL function, COPY, PREPARE or CREATE VIEW has analysed.  Queries that sit
 * in a utility statement (EXPLAIN, DECLARE CURSOR, CREATE TABLE AS) are
 * analysed together with it and are reached from there.  What PostgreSQL
 * stores without passing here (rules, policies, BEGIN ATOMIC bodies) is
 * refused in stored.c.
 */
#include "postgres.h"

#include "nodes/nodeFuncs.h"
#include "parser/analyze.h"
#include "utils/lsyscache.h"

#include "dpsql.h"

static post_parse_analyze_hook_type previous_hook = NULL;

static bool visit(Node *node, void *context);

static void
visit_statement(Node *statement, ParseState *pstate, bool top)
{
	translate_exposed(pstate, statement, top);
	visit(statement, pstate);
}

static void
visit_utility(Node *statement, ParseState *pstate)
{
	switch (nodeTag(statement))
	{
		case T_ExplainStmt:
			visit_statement(((ExplainStmt *) statement)->query, pstate, false);
			break;
		case T_DeclareCursorStmt:
			visit_statement(((DeclareCursorStmt *) statement)->query, pstate, true);
			break;
		case T_CreateTableAsStmt:
			{
				CreateTableAsStmt *create = (CreateTableAsStmt *) statement;

				visit_statement(create->query, pstate, false);
				/* a materialized view keeps a second copy: its definition */
				visit_statement((Node *) create->into->viewQuery, pstate, false);
			}
			break;
		default:
			break;
	}
}

/*
 * What is left of a statement when its private queries are replaced knows
 * their numbers only, not their noise.  Said here, before anything is charged.
 */
static void
refuse_interval(ParseState *pstate, FuncExpr *call)
{
	char	   *name = get_func_name(call->funcid);

	ereport(ERROR,
			(errcode(ERRCODE_DPSQL_UNSUPPORTED),
			 errmsg("%s needs a dp_count, dp_sum or dp_avg as its argument", name),
			 errhint("Use it in the query that holds the aggregate:"
					 " SELECT ... FROM (SELECT dp_count(*) AS n, %s(dp_count(*)) AS %s FROM ...) AS s.",
					 name, name + strlen("dp_interval_")),
			 parser_errposition(pstate, call->location)));
}

/*
 * The outermost query that holds a private aggregate of its own is replaced as
 * a whole, and what is inside it is dp.run's business.  The tree is changed in
 * place, so that whoever points to a query sees the new one.
 */
static bool
visit(Node *node, void *context)
{
	ParseState *pstate = (ParseState *) context;

	if (node == NULL)
		return false;
	if (IsA(node, Query))
	{
		Query	   *query = (Query *) node;
		int			location;

		if (query->commandType == CMD_UTILITY)
		{
			visit_utility(query->utilityStmt, pstate);
			return false;
		}
		if (holds_private_aggregate(query, &location))
		{
			if (query->hasWindowFuncs && put_around(query))
				return query_tree_walker(query, visit, context, 0);
			replace_query(pstate, query, location);
			/* sub-queries that are read beside the question may hold questions */
			return query->hasSubLinks && query_tree_walker(query, visit, context, 0);
		}
		return query_tree_walker(query, visit, context, 0);
	}
	if (IsA(node, FuncExpr) && is_interval_end(((FuncExpr *) node)->funcid))
		refuse_interval(pstate, (FuncExpr *) node);
	return expression_tree_walker(node, visit, context);
}

/*
 * Whoever hooked before sees the statement as written: query identifiers and
 * normalised texts stay those of the user's statement.
 */
static void
intercept(ParseState *pstate, Query *query, JumbleState *jstate)
{
	if (previous_hook)
		previous_hook(pstate, query, jstate);
	visit_statement((Node *) query, pstate, true);
}

void
intercept_init(void)
{
	previous_hook = post_parse_analyze_hook;
	post_parse_analyze_hook = intercept;
}
