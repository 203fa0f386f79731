/*
 * translate.c
 *		Ordinary SQL over the exposed views of the schema dpv becomes a private
 *		question.
 *
 * docs/views.md says what is translated.  An exposed view is replaced by a
 * derived table that selects the exposed columns of the relation, as
 * PostgreSQL's rewriter would replace a view: nothing else of the relation has
 * a name in the question.  Aggregates become their private counterparts.  The
 * rest is the path of every question.
 */
#include "postgres.h"

#include "catalog/pg_aggregate.h"
#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "parser/parse_node.h"
#include "rewrite/rewriteManip.h"
#include "tcop/tcopprot.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/regproc.h"

#include "dpsql.h"
#include "translate.h"

static void
refuse_aggregate(Translation *translation, Aggref *aggregate)
{
	ereport(ERROR,
			(errcode(ERRCODE_DPSQL_UNSUPPORTED),
			 errmsg("the aggregate %s has no private counterpart", format_procedure(aggregate->aggfnoid)),
			 errdetail("Views of protected relations are answered with noise."),
			 errhint("Use count, sum, avg, variance or stddev; of numbers, dates and timestamps also min, max"
					 " and percentile_cont(0.5) WITHIN GROUP (ORDER BY x)."),
			 parser_errposition(translation->pstate, aggregate->location)));
}

/* Aggregates of the query that is translated become private ones, in place. */
static bool
make_aggregates_private(Node *node, void *context)
{
	Translation *translation = (Translation *) context;

	if (node == NULL)
		return false;
	if (IsA(node, Query))
	{
		translation->depth++;
		query_tree_walker((Query *) node, make_aggregates_private, context, 0);
		translation->depth--;
		return false;
	}
	if (IsA(node, Aggref) && ((Aggref *) node)->agglevelsup == translation->depth)
	{
		Aggref	   *aggregate = (Aggref *) node;

		if (!is_private_aggregate(aggregate->aggfnoid) && !make_private_aggregate(aggregate))
			refuse_aggregate(translation, aggregate);
		translation->found = true;
	}
	return expression_tree_walker(node, make_aggregates_private, context);
}

/*
 * A query that only groups asks which groups there are.  It becomes the
 * question for their counts, which it does not show: HAVING dp_count(*) IS NOT NULL.
 */
static void
count_groups(Query *query)
{
	Aggref	   *count = makeNode(Aggref);
	NullTest   *counted = makeNode(NullTest);

	count->aggfnoid = private_counterpart(F_COUNT_);
	count->aggtype = INT8OID;
	count->aggstar = true;
	count->aggkind = AGGKIND_NORMAL;
	count->aggno = count->aggtransno = -1;
	count->location = -1;
	counted->arg = (Expr *) count;
	counted->nulltesttype = IS_NOT_NULL;
	counted->location = -1;
	query->havingQual = make_and_qual(query->havingQual, (Node *) counted);
	query->hasAggs = true;
}

/* Put a query in the place of what an entry read. */
static void
become_subquery(RangeTblEntry *rte, Query *subquery)
{
	RangeTblEntry *result = makeNode(RangeTblEntry);

	result->rtekind = RTE_SUBQUERY;
	result->subquery = subquery;
	result->alias = rte->alias ? rte->alias : makeAlias(rte->eref->aliasname, NIL);
	result->eref = rte->eref;
	result->lateral = false;
	result->inFromCl = rte->inFromCl;
	*rte = *result;
}

/* An outer WITH query means nothing in a question that stands alone: take a copy along. */
static void
take_with_query_along(RangeTblEntry *rte, Translation *translation)
{
	Level	   *owner;
	CommonTableExpr *cte = with_query(rte, translation->level, &owner);
	Query	   *copy;
	ListCell   *cell;
	ListCell   *name;

	if (cte == NULL || rte->ctelevelsup <= translation->depth ||
		((Query *) cte->ctequery)->commandType != CMD_SELECT)
		return;
	copy = copyObject((Query *) cte->ctequery);
	IncrementVarSublevelsUp((Node *) copy, rte->ctelevelsup, 1);
	name = list_head(cte->ctecolnames);
	foreach(cell, copy->targetList)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, cell);

		if (entry->resjunk || name == NULL)
			continue;
		entry->resname = pstrdup(strVal(lfirst(name)));
		name = lnext(cte->ctecolnames, name);
	}
	if (!translation->copied)
		cte->cterefcount--;
	become_subquery(rte, copy);
}

/* Give the columns of a query the names that a view has for them. */
static Query *
named_as(Oid view, Query *query)
{
	ListCell   *cell;

	foreach(cell, query->targetList)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, cell);

		if (!entry->resjunk)
			entry->resname = get_attname(view, entry->resno, false);
	}
	return query;
}

/* What stands for an entry that reads a view, or NULL. */
static Query *
query_of_view(Translation *translation, RangeTblEntry *rte)
{
	const Exposed *exposed = exposed_by(translation->known, rte);
	Query	   *definition;

	if (exposed)
		return exposed_selection(exposed);
	definition = passing_view(translation, rte);
	return definition ? named_as(rte->relid, copyObject(definition)) : NULL;
}

/* Views and outer WITH queries that a query reads, and those of its sub-queries. */
static bool
substitute(Node *node, void *context)
{
	Translation *translation = (Translation *) context;

	if (node == NULL)
		return false;
	if (IsA(node, Query))
	{
		Query	   *query = (Query *) node;
		Level		level = {query, translation->level};
		List	   *views = NIL;
		ListCell   *cell;

		translation->level = &level;
		foreach(cell, query->rtable)
		{
			RangeTblEntry *rte = lfirst_node(RangeTblEntry, cell);
			Query	   *instead;

			if (rte->rtekind == RTE_CTE)
			{
				bool		copied = translation->copied;

				take_with_query_along(rte, translation);
				if (rte->rtekind == RTE_SUBQUERY)
				{
					translation->copied = true;
					translation->depth++;
					substitute((Node *) rte->subquery, context);
					translation->depth--;
					translation->copied = copied;
				}
			}
			else if ((instead = query_of_view(translation, rte)) != NULL)
			{
				RangeTblEntry *view = makeNode(RangeTblEntry);

				*view = *rte;
				view->inFromCl = false;
				views = lappend(views, view);
				become_subquery(rte, instead);
			}
		}
		translation->depth++;
		query_tree_walker(query, substitute, context, 0);
		translation->depth--;
		/* unread, so that the reader needs the privilege, and plans and views depend on it */
		query->rtable = list_concat(query->rtable, views);
		translation->level = level.outer;
		return false;
	}
	return expression_tree_walker(node, substitute, context);
}

static void
make_private(Translation *translation, Query *query)
{
	Translation inside = {translation->pstate, translation->known, translation->passing,
		translation->level, 0, false, false};

	if (!query->hasAggs && query->groupClause == NIL && query->distinctClause != NIL)
	{
		query->groupClause = query->distinctClause;
		query->distinctClause = NIL;
	}
	query_tree_walker(query, make_aggregates_private, &inside, 0);
	if (!inside.found)
		count_groups(query);
	substitute((Node *) query, &inside);
	prune_unread(query);
}

static bool translate(Node *node, void *context);

/*
 * Sub-queries of a query that is about to be a question become questions of
 * their own where they stand alone (aside.c).  Those of IN and EXISTS that
 * only remove duplicates mean the same without.
 */
static bool
translate_values(Node *node, void *context)
{
	Translation *translation = (Translation *) context;

	if (node == NULL)
		return false;
	if (IsA(node, Query))
	{
		Level		level = {(Query *) node, translation->level};

		translation->level = &level;
		query_tree_walker((Query *) node, translate_values, context, 0);
		translation->level = level.outer;
		return false;
	}
	if (IsA(node, SubLink))
	{
		SubLink    *sublink = (SubLink *) node;
		Query	   *query = (Query *) sublink->subselect;
		bool		duplicates_only = (sublink->subLinkType == ANY_SUBLINK || sublink->subLinkType == EXISTS_SUBLINK) &&
			!query->hasAggs && query->limitCount == NULL && query->limitOffset == NULL;

		if (!(duplicates_only && combines_rows(query)))
		{
			translate_values(sublink->testexpr, context);
			return is_correlated(query) ? translate_values((Node *) query, context)
				: translate((Node *) query, context);
		}
	}
	return expression_tree_walker(node, translate_values, context);
}

static bool
translate(Node *node, void *context)
{
	Translation *translation = (Translation *) context;

	if (node == NULL)
		return false;
	if (IsA(node, Query))
	{
		Query	   *query = (Query *) node;
		Level		level = {query, translation->level};

		if (query->commandType == CMD_UTILITY)
			return false;
		if (combines_rows(query) && reads_exposed(translation, query, translation->level) &&
			!put_around(query))
		{
			translate_values(node, context);
			make_private(translation, query);
			return false;
		}
		translation->level = &level;
		query_tree_walker(query, translate, context, 0);
		translation->level = level.outer;
		return false;
	}
	return expression_tree_walker(node, translate, context);
}

/* Is there an exposed view anywhere? */
static bool
mentions_exposed(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, RangeTblEntry))
		return exposed_by(((Translation *) context)->known, (RangeTblEntry *) node) ||
			passing_view((Translation *) context, (RangeTblEntry *) node);
	if (IsA(node, Query))
	{
		if (((Query *) node)->commandType == CMD_UTILITY)
			return false;
		return query_tree_walker((Query *) node, mentions_exposed, context,
								 QTW_EXAMINE_RTES_BEFORE);
	}
	return expression_tree_walker(node, mentions_exposed, context);
}

/*
 * A statement of the client that wants rows of an exposed view gives its columns
 * and none, like LIMIT 0, where the session has chosen that: some tools learn
 * the columns of a query from its first row.  Never a statement that keeps what
 * it reads, or one in a function: there, no rows would be a wrong answer.
 */
static void
show_no_rows(Translation *translation, Query *query)
{
	if (refused_rows != REFUSED_ROWS_NONE || translation->pstate->p_sourcetext != debug_query_string ||
		combines_rows(query) || !reads_exposed(translation, query, NULL))
		return;
	query->limitCount = (Node *) makeConst(INT8OID, -1, InvalidOid, sizeof(int64), Int64GetDatum(0), false,
										   FLOAT8PASSBYVAL);
	query->limitOption = LIMIT_OPTION_COUNT;
	ereport(WARNING,
			(errmsg("rows of protected relations are not shown: these are the columns alone"),
			 errhint("RESET dp.refused_rows to be told what can be asked instead.")));
}

/*
 * Make private questions, in place, of the queries in a statement that combine
 * rows of exposed views: the innermost ones, so that what is around them works
 * on noised answers.  What combines nothing reads the view, which refuses.
 */
void
translate_exposed(ParseState *pstate, Node *statement, bool top)
{
	List	   *known = NIL;
	List	   *passing = NIL;
	Translation translation = {pstate, &known, &passing, NULL, 0, false, false};

	if (!mentions_exposed(statement, &translation))
		return;
	translate(statement, &translation);
	if (top)
		show_no_rows(&translation, (Query *) statement);
}
