/*
 * aside.c
 *		Sub-queries of a question that stand alone and read no protected rows are
 *		read beside it: what they give is a parameter of the question.
 *
 *		SELECT count(*) FROM dpv.orders WHERE price > (SELECT max(price) FROM list)
 *		  AND place IN (SELECT place FROM dpv.orders GROUP BY 1 ORDER BY count(*) DESC LIMIT 5)
 *
 * They are read by the role that asks, with its own privileges, before the
 * question is asked, as if it had typed what they gave: PostgreSQL reads such a
 * sub-query once for a statement, too.  What they give is a fact that does not
 * depend on protected rows, or a noised answer (PRIVACY.md, section 2 (b), (c)).
 * A sub-query with a private aggregate becomes a question of its own.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/transam.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parse_coerce.h"
#include "parser/parsetree.h"
#include "rewrite/rewriteHandler.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/syscache.h"

#include "compat.h"
#include "dpsql.h"

/* What is looked for in a query: something that comes from around it. */
typedef struct
{
	int			depth;
	bool		with;			/* WITH queries and transition tables, too */
} Reach;

static bool
reaches_out(Node *node, void *context)
{
	Reach	   *reach = (Reach *) context;
	int			levels;

	if (node == NULL)
		return false;
	if (IsA(node, Query))
	{
		bool		found;

		reach->depth++;
		found = query_tree_walker((Query *) node, reaches_out, context, QTW_EXAMINE_RTES_BEFORE);
		reach->depth--;
		return found;
	}
	if (IsA(node, RangeTblEntry))
	{
		RangeTblEntry *rte = (RangeTblEntry *) node;

		return reach->with && (rte->rtekind == RTE_NAMEDTUPLESTORE ||
							   (rte->rtekind == RTE_CTE && (int) rte->ctelevelsup > reach->depth));
	}
	if (IsA(node, Var))
		levels = ((Var *) node)->varlevelsup;
	else if (IsA(node, Aggref))
		levels = ((Aggref *) node)->agglevelsup;
	else if (IsA(node, GroupingFunc))
		levels = ((GroupingFunc *) node)->agglevelsup;
	else
		levels = compat_levels_up(node);
	return levels > reach->depth || expression_tree_walker(node, reaches_out, context);
}

/* Does a sub-query use columns of what is around it? */
bool
is_correlated(Query *query)
{
	Reach		reach = {0, false};

	return query_tree_walker(query, reaches_out, &reach, QTW_EXAMINE_RTES_BEFORE);
}

/* Can the sub-query be read without what is around it? */
static bool
stands_alone(Query *query)
{
	Reach		reach = {0, true};

	return query->commandType == CMD_SELECT && !query->hasModifyingCTE && query->rowMarks == NIL &&
		!query_tree_walker(query, reaches_out, &reach, QTW_EXAMINE_RTES_BEFORE);
}

static bool
is_protected(Oid relation)
{
	Oid			types[] = {OIDOID};

	return DatumGetBool(OidFunctionCall1(member_function("reads_protected", 1, types),
										 ObjectIdGetDatum(relation)));
}

/* Does it read protected rows, elsewhere than in questions? */
static bool
reads_protected(Node *node, void *context)
{
	int			location;

	if (node == NULL)
		return false;
	check_stack_depth();
	if (IsA(node, Query))
	{
		Query	   *query = (Query *) node;

		if (holds_private_aggregate(query, &location))
			return false;
		return query_tree_walker(query, reads_protected, context, QTW_EXAMINE_RTES_BEFORE);
	}
	if (IsA(node, RangeTblEntry))
	{
		RangeTblEntry *rte = (RangeTblEntry *) node;
		Relation	view;
		bool		found;

		/* what is not in FROM is remembered by a question, and not read */
		if (rte->rtekind != RTE_RELATION || !rte->inFromCl || rte->relid < FirstNormalObjectId)
			return false;
		if (rte->relkind != RELKIND_VIEW)
			return is_protected(rte->relid);
		view = table_open(rte->relid, AccessShareLock);
		found = reads_protected((Node *) get_view_query(view), context);
		table_close(view, NoLock);
		return found;
	}
	return expression_tree_walker(node, reads_protected, context);
}

static TargetEntry *
only_column(Query *query)
{
	ListCell   *cell;

	foreach(cell, query->targetList)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, cell);

		if (!entry->resjunk)
			return entry;
	}
	return NULL;
}

/*
 * Is the column that IN looks into part of a key of its relation?  Then the
 * question joins that relation (dpsql/query/matches.py), which tells it more
 * than a list of values would: which groups there are.
 */
static bool
is_of_key(Query *query, Node *column)
{
	RangeTblEntry *rte;
	Relation	relation;
	ListCell   *cell;
	bool		found = false;

	check_stack_depth();
	column = compat_before_grouping(query, column);
	if (column && IsA(column, RelabelType))
		column = (Node *) ((RelabelType *) column)->arg;
	if (column == NULL || !IsA(column, Var) || ((Var *) column)->varattno <= 0 || query->setOperations ||
		query->groupClause || query->hasAggs || query->limitCount || query->limitOffset)
		return false;
	rte = rt_fetch(((Var *) column)->varno, query->rtable);
	if (rte->rtekind == RTE_JOIN)
		return is_of_key(query, list_nth(rte->joinaliasvars, ((Var *) column)->varattno - 1));
	if (rte->rtekind == RTE_SUBQUERY)
		return is_of_key(rte->subquery,
						 (Node *) get_tle_by_resno(rte->subquery->targetList, ((Var *) column)->varattno)->expr);
	if (rte->rtekind != RTE_RELATION || rte->relid < FirstNormalObjectId)
		return false;
	if (rte->relkind == RELKIND_VIEW)
		return true;
	relation = table_open(rte->relid, AccessShareLock);
	foreach(cell, RelationGetIndexList(relation))
	{
		HeapTuple	tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(lfirst_oid(cell)));
		Form_pg_index index;

		if (!HeapTupleIsValid(tuple))
			continue;
		index = (Form_pg_index) GETSTRUCT(tuple);
		for (int i = 0; index->indisunique && i < index->indnkeyatts; i++)
			found |= index->indkey.values[i] == ((Var *) column)->varattno;
		ReleaseSysCache(tuple);
	}
	table_close(relation, NoLock);
	return found;
}

typedef struct
{
	ParseState *pstate;
	List	   *sublinks;		/* as they were */
	List	   *values;			/* what is read instead */
} Aside;

/* The parameter for a value that is read beside the question. */
static Node *
parameter(Aside *aside, SubLink *sublink, Node *value)
{
	Param	   *result = makeNode(Param);
	int			number = 0;
	ListCell   *cell;

	/* the same expression twice, of which one may be grouped by, stays the same */
	foreach(cell, aside->sublinks)
	{
		if (equal(lfirst(cell), sublink) && !contain_volatile_functions((Node *) sublink))
			break;
		number++;
	}
	if (number == list_length(aside->sublinks))
	{
		aside->sublinks = lappend(aside->sublinks, sublink);
		aside->values = lappend(aside->values, value);
	}
	result->paramkind = PARAM_EXTERN;
	/* negative: no client's */
	result->paramid = -1 - number;
	result->paramtype = exprType(value);
	result->paramtypmod = -1;
	result->paramcollid = exprCollation(value);
	result->location = sublink->location;
	return (Node *) result;
}

/* An expression with a collation that its text would not have: that of a literal is its type's. */
static Node *
collated(Node *expression, Oid collation)
{
	CollateExpr *result;

	if (!OidIsValid(collation) || collation == get_typcollation(exprType(expression)))
		return expression;
	result = makeNode(CollateExpr);
	result->arg = (Expr *) expression;
	result->collOid = collation;
	result->location = -1;
	return (Node *) result;
}

/* ARRAY(sub-query), of elements of a type; NULL: there is no such array. */
static Node *
list_of(ParseState *pstate, SubLink *sublink, Oid element)
{
	SubLink    *list = makeNode(SubLink);
	Oid			found = exprType((Node *) only_column((Query *) sublink->subselect)->expr);

	if (!OidIsValid(get_array_type(found)) || !OidIsValid(get_array_type(element)))
		return NULL;
	list->subLinkType = ARRAY_SUBLINK;
	list->subselect = sublink->subselect;
	list->location = sublink->location;
	if (found == element)
		return (Node *) list;
	return coerce_to_target_type(pstate, (Node *) list, get_array_type(found), get_array_type(element), -1,
								 COERCION_EXPLICIT, COERCE_EXPLICIT_CAST, -1);
}

/* x = ANY (list) for x IN (sub-query), and its like; NULL: for something else. */
static Node *
compared_with_list(Aside *aside, SubLink *sublink)
{
	OpExpr	   *test = (OpExpr *) sublink->testexpr;
	ScalarArrayOpExpr *result;
	Node	   *looked_for;
	Node	   *list;
	Node	   *left;

	if (!test || !IsA(test, OpExpr) || list_length(test->args) != 2)
		return NULL;
	looked_for = lsecond(test->args);
	if (IsA(looked_for, RelabelType))
		looked_for = (Node *) ((RelabelType *) looked_for)->arg;
	if (!IsA(looked_for, Param) || ((Param *) looked_for)->paramkind != PARAM_SUBLINK)
		return NULL;
	list = list_of(aside->pstate, sublink, exprType(lsecond(test->args)));
	if (list == NULL)
		return NULL;
	left = linitial(test->args);
	if (exprCollation(left) != test->inputcollid)
		left = collated(left, test->inputcollid);
	result = makeNode(ScalarArrayOpExpr);
	result->opno = test->opno;
	result->opfuncid = test->opfuncid;
	result->useOr = sublink->subLinkType == ANY_SUBLINK;
	result->inputcollid = test->inputcollid;
	result->args = list_make2(left, parameter(aside, sublink, list));
	result->location = test->location;
	return (Node *) result;
}

/* What stands for a sub-query that is read beside the question, or NULL: it stays in it. */
static Node *
instead(Aside *aside, SubLink *sublink)
{
	Query	   *query = (Query *) sublink->subselect;
	bool		listed = sublink->subLinkType == ANY_SUBLINK || sublink->subLinkType == ALL_SUBLINK;

	if (sublink->subLinkType != EXPR_SUBLINK && sublink->subLinkType != EXISTS_SUBLINK &&
		sublink->subLinkType != ARRAY_SUBLINK && !listed)
		return NULL;
	if (sublink->subLinkType != EXISTS_SUBLINK &&
		get_typtype(exprType((Node *) only_column(query)->expr)) == TYPTYPE_PSEUDO)
		return NULL;
	if (!stands_alone(query) || (listed && is_of_key(query, (Node *) only_column(query)->expr)) || reads_protected((Node *) query, NULL))
		return NULL;
	return listed ? compared_with_list(aside, sublink)
		: collated(parameter(aside, sublink, (Node *) sublink), exprCollation((Node *) sublink));
}

static Node *
replace(Node *node, void *context)
{
	if (node == NULL)
		return NULL;
	if (IsA(node, Query))
		return (Node *) query_tree_mutator((Query *) node, replace, context, 0);
	if (IsA(node, SubLink))
	{
		Node	   *found = instead((Aside *) context, (SubLink *) node);

		if (found)
			/* what is looked for may hold others */
			return IsA(found, ScalarArrayOpExpr) ? expression_tree_mutator(found, replace, context) : found;
	}
	return expression_tree_mutator(node, replace, context);
}

/*
 * The query with parameters -1, -2, ... for sub-queries that are read beside
 * it, and the expressions that give their values, in that order.
 */
Query *
put_aside(ParseState *pstate, Query *query, List **values)
{
	Aside		aside = {pstate, NIL, NIL};
	Query	   *result = query_tree_mutator(query, replace, &aside, 0);

	*values = aside.values;
	return result;
}
