/*
 * through.c
 *		Which queries rows of exposed views come through to, uncombined: from the
 *		views, WITH queries, sub-queries and views of others over them.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/transam.h"
#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "rewrite/rewriteHandler.h"
#include "utils/rel.h"

#include "dpsql.h"
#include "translate.h"

/* A view that somebody made over exposed ones. */
typedef struct
{
	Oid			view;
	Query	   *definition;		/* NULL: no rows of exposed views pass through it */
} Passing;

/* Does it combine rows, so that it can be answered? */
bool
combines_rows(Query *query)
{
	return query->hasAggs || query->groupClause != NIL || query->groupingSets != NIL ||
		query->havingQual != NULL ||
		(query->distinctClause != NIL && !query->hasDistinctOn && !query->hasWindowFuncs &&
		 query->setOperations == NULL);
}

/* The WITH query that an entry reads, and the query that defines it; NULL while it is defined by itself. */
CommonTableExpr *
with_query(RangeTblEntry *rte, Level *level, Level **owner)
{
	ListCell   *cell;

	if (rte->self_reference)
		return NULL;
	for (Index up = rte->ctelevelsup; up > 0 && level; up--)
		level = level->outer;
	*owner = level;
	foreach(cell, level ? level->query->cteList : NIL)
	{
		CommonTableExpr *cte = lfirst_node(CommonTableExpr, cell);

		if (strcmp(cte->ctename, rte->ctename) == 0)
			return IsA(cte->ctequery, Query) && !cte->cterecursive ? cte : NULL;
	}
	return NULL;
}

/* The definition of a view of anybody's through which rows of exposed views come uncombined, or NULL. */
Query *
passing_view(Translation *translation, RangeTblEntry *rte)
{
	Passing    *passing;
	ListCell   *cell;
	Relation	relation;
	Query	   *definition;

	if (rte->rtekind != RTE_RELATION || rte->relkind != RELKIND_VIEW || !rte->inFromCl ||
		rte->relid < FirstNormalObjectId || is_dpv_view(rte->relid))
		return NULL;
	foreach(cell, *translation->passing)
	{
		passing = (Passing *) lfirst(cell);
		if (passing->view == rte->relid)
			return passing->definition;
	}
	passing = palloc0(sizeof(Passing));
	passing->view = rte->relid;
	/* known from here on, so that a view over itself ends */
	*translation->passing = lappend(*translation->passing, passing);
	relation = table_open(rte->relid, AccessShareLock);
	definition = get_view_query(relation);
	if (!combines_rows(definition) && reads_exposed(translation, definition, NULL))
		passing->definition = copyObject(definition);
	table_close(relation, NoLock);
	return passing->definition;
}

/* Do rows of an exposed view come through to this query uncombined? */
static bool
entry_reads_exposed(Translation *translation, RangeTblEntry *rte, Level *level)
{
	CommonTableExpr *cte;
	Level	   *owner;

	switch (rte->rtekind)
	{
		case RTE_RELATION:
			return exposed_by(translation->known, rte) || passing_view(translation, rte);
		case RTE_SUBQUERY:
			return !combines_rows(rte->subquery) && reads_exposed(translation, rte->subquery, level);
		case RTE_CTE:
			cte = with_query(rte, level, &owner);
			return cte && !combines_rows((Query *) cte->ctequery) &&
				reads_exposed(translation, (Query *) cte->ctequery, owner);
		default:
			return false;
	}
}

bool
reads_exposed(Translation *translation, Query *query, Level *outer)
{
	Level		level = {query, outer};
	ListCell   *cell;

	check_stack_depth();
	if (query->commandType != CMD_SELECT || is_probe(query))
		return false;
	foreach(cell, query->rtable)
	{
		if (entry_reads_exposed(translation, lfirst_node(RangeTblEntry, cell), &level))
			return true;
	}
	return false;
}

/* The value of an expression over constants alone, or NULL. */
static Const *
constant_value(Node *expression)
{
	Node	   *value;

	if (expression == NULL || contain_var_clause(expression) ||
		contain_mutable_functions(expression) || contain_subplans(expression))
		return NULL;
	value = eval_const_expressions(NULL, copyObject(expression));
	return IsA(value, Const) ? (Const *) value : NULL;
}

/*
 * LIMIT 0, WHERE false, WHERE 1 <> 1: tools ask so for columns and types, and
 * count the rows of such a query.  As no row is read, the view itself serves
 * them, for nothing.
 */
bool
is_probe(Query *query)
{
	Const	   *limit = constant_value(query->limitCount);
	ListCell   *cell;

	if (limit && !limit->constisnull && DatumGetInt64(limit->constvalue) == 0)
		return true;
	foreach(cell, make_ands_implicit((Expr *) query->jointree->quals))
	{
		Const	   *condition = constant_value(lfirst(cell));

		if (condition && (condition->constisnull || !DatumGetBool(condition->constvalue)))
			return true;
	}
	return false;
}
