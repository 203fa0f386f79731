/*
 * scope.c
 *		Does a query hold a private aggregate, and can it be taken out of the
 *		statement around it without changing what it means?
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "nodes/nodeFuncs.h"
#include "parser/parse_node.h"
#include "utils/lsyscache.h"

#include "compat.h"
#include "dpsql.h"

typedef struct
{
	ParseState *pstate;			/* for error positions */
	int			depth;			/* queries between here and the one looked at */
	int			location;		/* of the private aggregate */
} Scope;

/*
 * An aggregate belongs to the query that its arguments come from, which may be
 * further out than the place where it is written.
 */
static bool
find_aggregate(Node *node, void *context)
{
	Scope	   *scope = (Scope *) context;

	if (node == NULL)
		return false;
	if (IsA(node, Aggref))
	{
		Aggref	   *aggregate = (Aggref *) node;

		if (aggregate->agglevelsup == scope->depth &&
			is_private_aggregate(aggregate->aggfnoid))
		{
			scope->location = aggregate->location;
			return true;
		}
	}
	else if (IsA(node, WindowFunc))
	{
		WindowFunc *call = (WindowFunc *) node;

		if (scope->depth == 0 && call->winagg && is_private_aggregate(call->winfnoid))
		{
			scope->location = call->location;
			return true;
		}
	}
	else if (IsA(node, Query))
	{
		bool		found;

		scope->depth++;
		found = query_tree_walker((Query *) node, find_aggregate, context, 0);
		scope->depth--;
		return found;
	}
	return expression_tree_walker(node, find_aggregate, context);
}

/* Is there a private aggregate of this query's own level, and where? */
bool
holds_private_aggregate(Query *query, int *location)
{
	Scope		scope = {NULL, 0, -1};
	bool		found;

	if (!query->hasAggs && !query->hasWindowFuncs)
		return false;
	found = query_tree_walker(query, find_aggregate, &scope, 0);
	*location = scope.location;
	return found;
}

static void
refuse(Scope *scope, int location, const char *message, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_DPSQL_UNSUPPORTED),
			 errmsg("%s", message),
			 errhint("%s", hint),
			 parser_errposition(scope->pstate,
								location >= 0 ? location : scope->location)));
}

static void
refuse_correlated(Scope *scope, int location)
{
	refuse(scope, location,
		   "a query with a private aggregate cannot refer to an outer query",
		   "Join the relations inside the query that holds the aggregate, or group it by the"
		   " column and join its result.");
}

static void
check_relation(Scope *scope, RangeTblEntry *rte)
{
	if (rte->rtekind == RTE_CTE && rte->ctelevelsup > scope->depth)
		refuse(scope, -1,
			   psprintf("a query with a private aggregate cannot read the outer WITH query \"%s\"",
						rte->ctename),
			   "Write the WITH clause inside the query that holds the aggregate:"
			   " SELECT ... FROM (WITH ... SELECT dp_count(*) FROM ...) AS s.");
	if (rte->rtekind == RTE_NAMEDTUPLESTORE)
		refuse(scope, -1,
			   psprintf("a query with a private aggregate cannot read the transition table \"%s\"",
						rte->enrname),
			   "Read the protected relation itself.");
}

static void
check_levels(Scope *scope, Node *node)
{
	int			levels = -1;
	int			location = -1;

	switch (nodeTag(node))
	{
		case T_Var:
			levels = ((Var *) node)->varlevelsup;
			location = ((Var *) node)->location;
			break;
		case T_Aggref:
			levels = ((Aggref *) node)->agglevelsup;
			location = ((Aggref *) node)->location;
			break;
		case T_GroupingFunc:
			levels = ((GroupingFunc *) node)->agglevelsup;
			location = ((GroupingFunc *) node)->location;
			break;
		default:
			levels = compat_levels_up(node);
			break;
	}
	if (levels > scope->depth)
		refuse_correlated(scope, location);
}

static void
check_query(Scope *scope, Query *query)
{
	if (query->hasModifyingCTE)
		refuse(scope, -1, "a query with a private aggregate cannot modify data in WITH",
			   "Run the INSERT, UPDATE or DELETE as a statement of its own.");
	if (query->rowMarks != NIL)
		refuse(scope, -1, "a query with a private aggregate cannot lock rows",
			   "Remove the FOR UPDATE or FOR SHARE clause.");
}

static bool
check_node(Node *node, void *context)
{
	Scope	   *scope = (Scope *) context;

	if (node == NULL)
		return false;
	if (IsA(node, Query))
	{
		check_query(scope, (Query *) node);
		scope->depth++;
		query_tree_walker((Query *) node, check_node, context, QTW_EXAMINE_RTES_BEFORE);
		scope->depth--;
		return false;
	}
	if (IsA(node, RangeTblEntry))
	{
		check_relation(scope, (RangeTblEntry *) node);
		return false;			/* the walker goes into it by itself */
	}
	if (IsA(node, Param) && ((Param *) node)->paramkind == PARAM_EXTERN &&
		get_typtype(((Param *) node)->paramtype) == TYPTYPE_PSEUDO)
		refuse(scope, ((Param *) node)->location,
			   "a query with a private aggregate cannot take a parameter of a pseudo-type",
			   "Pass the columns of the record as parameters.");
	check_levels(scope, node);
	return expression_tree_walker(node, check_node, context);
}

/*
 * Raise an error unless the query means the same when it stands alone.
 *
 * PostgreSQL itself refuses FOR UPDATE beside an aggregate; the check here is
 * for sub-queries.
 */
void
check_self_contained(ParseState *pstate, Query *query, int location)
{
	Scope		scope = {pstate, 0, location};

	check_query(&scope, query);
	query_tree_walker(query, check_node, &scope, QTW_EXAMINE_RTES_BEFORE);
}
