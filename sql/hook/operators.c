/*
 * operators.c
 *		Operators that a statement uses without naming them.
 *
 * USING, NULLIF, IS DISTINCT FROM and CASE x WHEN take the operator "=" that
 * the search_path gives, and ruleutils.c prints none.  The printed statement is
 * read with the operators of pg_catalog, so another one would be exchanged for
 * those in silence.  What is printed with its operator is dp.run's business.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/transam.h"
#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "rewrite/rewriteHandler.h"
#include "utils/rel.h"
#include "utils/regproc.h"
#include "utils/typcache.h"

#include "dpsql.h"

typedef struct
{
	ParseState *pstate;			/* for error positions */
	int			location;		/* of the private aggregate; -1 in a view */
	const char *construct;		/* whose printed form hides the operators below */
	const char *view;			/* whose definition is looked at */
	Oid			view_relid;		/* which the definition mentions without reading it */
} Hidden;

static bool check_node(Node *node, void *context);

/* The schema to take out of the search_path. */
static char *
schema_of(Oid operator)
{
	List	   *names;
	List	   *arguments;

	format_operator_parts(operator, &names, &arguments, 0);
	return (char *) linitial(names);
}

static void
check_operator(Hidden *hidden, Oid operator, const char *construct, int location)
{
	/* whatever initdb made has a lower number */
	if (operator < FirstNormalObjectId)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_DPSQL_FUNCTION),
			 errmsg("the operator %s is not allowed in a private query",
					format_operator_extended(operator, FORMAT_OPERATOR_FORCE_QUALIFY)),
			 hidden->view ?
			 errdetail("%s uses it in the definition of view \"%s\".", construct, hidden->view) :
			 errdetail("%s found it by the search_path.", construct),
			 errhint("Use a built-in operator: take \"%s\" out of search_path, or write the condition"
					 " with OPERATOR(pg_catalog.=).", schema_of(operator)),
			 hidden->view ? 0 :
			 parser_errposition(hidden->pstate, location >= 0 ? location : hidden->location)));
}

/* Sorting and grouping are printed without operator where it is the default of the type. */
static void
check_clauses(Hidden *hidden, List *clauses, List *targets, const char *construct)
{
	ListCell   *cell;

	foreach(cell, clauses)
	{
		SortGroupClause *clause = lfirst_node(SortGroupClause, cell);
		Node	   *expr = get_sortgroupclause_expr(clause, targets);
		TypeCacheEntry *type = lookup_type_cache(exprType(expr), TYPECACHE_EQ_OPR |
												 TYPECACHE_LT_OPR | TYPECACHE_GT_OPR);

		if (clause->sortop != type->lt_opr && clause->sortop != type->gt_opr)
			check_operator(hidden, clause->sortop, construct, exprLocation(expr));
		if (clause->eqop != type->eq_opr)
			check_operator(hidden, clause->eqop, construct, exprLocation(expr));
	}
}

/* The same in a view's definition, which is printed as well. */
static void
check_view(Hidden *hidden, Oid relid)
{
	Relation	relation = table_open(relid, AccessShareLock);
	Hidden		inside = {hidden->pstate, -1, NULL, RelationGetRelationName(relation), relid};

	check_stack_depth();
	check_node((Node *) get_view_query(relation), &inside);
	table_close(relation, NoLock);
}

static void
check_case(Hidden *hidden, CaseExpr *expr)
{
	ListCell   *cell;

	foreach(cell, expr->arg ? expr->args : NIL)
	{
		Node	   *condition = (Node *) lfirst_node(CaseWhen, cell)->expr;

		if (IsA(condition, OpExpr))
			check_operator(hidden, ((OpExpr *) condition)->opno, "CASE", expr->location);
	}
}

static bool
check_node(Node *node, void *context)
{
	Hidden	   *hidden = (Hidden *) context;

	if (node == NULL)
		return false;
	switch (nodeTag(node))
	{
		case T_Query:
			{
				Query	   *query = (Query *) node;

				check_clauses(hidden, query->sortClause, query->targetList, "ORDER BY");
				check_clauses(hidden, query->groupClause, query->targetList, "GROUP BY");
				check_clauses(hidden, query->distinctClause, query->targetList, "DISTINCT");
				return query_tree_walker(query, check_node, context, QTW_EXAMINE_RTES_BEFORE);
			}
		case T_RangeTblEntry:
			if (((RangeTblEntry *) node)->rtekind == RTE_RELATION &&
				((RangeTblEntry *) node)->relkind == RELKIND_VIEW &&
				((RangeTblEntry *) node)->relid != hidden->view_relid)
				check_view(hidden, ((RangeTblEntry *) node)->relid);
			return false;		/* the walker goes into it by itself */
		case T_JoinExpr:
			{
				JoinExpr   *join = (JoinExpr *) node;
				Hidden		inside = *hidden;

				inside.construct = join->usingClause ? "USING" : NULL;
				check_node(join->larg, context);
				check_node(join->rarg, context);
				check_node(join->quals, &inside);
				return false;
			}
		case T_OpExpr:
			if (hidden->construct)
				check_operator(hidden, ((OpExpr *) node)->opno, hidden->construct, -1);
			break;
		case T_DistinctExpr:
			check_operator(hidden, ((DistinctExpr *) node)->opno, "IS DISTINCT FROM",
						   ((DistinctExpr *) node)->location);
			break;
		case T_NullIfExpr:
			check_operator(hidden, ((NullIfExpr *) node)->opno, "NULLIF",
						   ((NullIfExpr *) node)->location);
			break;
		case T_CaseExpr:
			check_case(hidden, (CaseExpr *) node);
			break;
		default:
			break;
	}
	return expression_tree_walker(node, check_node, context);
}

/* Raise an error for an operator that printing would exchange for a built-in one. */
void
check_hidden_operators(ParseState *pstate, Query *query, int location)
{
	Hidden		hidden = {pstate, location, NULL, NULL, InvalidOid};

	check_node((Node *) query, &hidden);
}
