/*
 * around.c
 *		What a query does with its groups beside aggregating goes around the
 *		question that is asked: window functions, and joins with answers.
 *
 * Window functions see groups, never rows, so that they mean the same over a
 * derived table of the groups.
 *
 * Tools show the largest groups only, by joining rows with a grouped sub-query
 * that ends in LIMIT:
 *
 *		SELECT day, place, count(*) FROM rows
 *		  JOIN (SELECT place AS p, count(*) AS n FROM rows GROUP BY 1 ORDER BY 2 DESC LIMIT 5) AS top
 *		  ON place = p GROUP BY day, place
 *
 * Where the conditions on the sub-query read nothing of the rows but keys that
 * are grouped by, and find at most one row of it for each group, they choose
 * among groups:
 *
 *		SELECT * FROM (SELECT day, place, count(*) FROM rows GROUP BY day, place) AS answer
 *		  JOIN (...) AS top ON place = p
 */
#include "postgres.h"

#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/planmain.h"
#include "optimizer/tlist.h"
#include "parser/parsetree.h"
#include "rewrite/rewriteManip.h"
#include "utils/lsyscache.h"

#include "compat.h"
#include "dpsql.h"

#define ANSWER 1
#define OTHER 2

typedef struct
{
	Query	   *query;
	Index		other;			/* the sub-query in the query's range table */
	bool		reads_rows;		/* something that is no key was met */
} Outward;

/* The entry that an expression of the query is, if it is grouped by. */
static TargetEntry *
key_of(Query *query, Node *expression)
{
	ListCell   *cell;

	if (IsA(expression, Const) || IsA(expression, Param))
		return NULL;
	foreach(cell, query->groupClause)
	{
		TargetEntry *entry = get_sortgroupclause_tle(lfirst_node(SortGroupClause, cell), query->targetList);

		if (equal(entry->expr, expression) ||
			equal(compat_before_grouping(query, (Node *) entry->expr), expression))
			return entry;
	}
	return NULL;
}

/* The column of the answer for an entry of the query. */
static Var *
answer_column(TargetEntry *entry)
{
	return makeVar(ANSWER, entry->resno, exprType((Node *) entry->expr), exprTypmod((Node *) entry->expr),
				   exprCollation((Node *) entry->expr), 0);
}

/* A condition of the query as one of what stands around it. */
static Node *
outward(Node *node, void *context)
{
	Outward    *moved = (Outward *) context;
	TargetEntry *key;

	if (node == NULL)
		return NULL;
	if (IsA(node, Var) && ((Var *) node)->varlevelsup == 0 && ((Var *) node)->varno == moved->other)
	{
		Var		   *var = copyObject((Var *) node);

		var->varno = var->varnosyn = OTHER;
		return (Node *) var;
	}
	if ((key = key_of(moved->query, node)) != NULL)
		return (Node *) answer_column(key);
	if (IsA(node, Var) && ((Var *) node)->varlevelsup == 0)
		moved->reads_rows = true;
	return expression_tree_mutator(node, outward, context);
}

/* Do the conditions find at most one row of the sub-query for each group? */
static bool
finds_one(List *conditions, Query *other)
{
	List	   *columns = NIL;
	List	   *operators = NIL;
	ListCell   *cell;

	foreach(cell, conditions)
	{
		OpExpr	   *condition = (OpExpr *) lfirst(cell);

		/* equalities only: query_is_distinct_for takes that for granted */
		if (!IsA(condition, OpExpr) || list_length(condition->args) != 2 ||
			!op_mergejoinable(condition->opno, exprType(linitial(condition->args))))
			continue;
		for (int side = 0; side < 2; side++)
		{
			Var		   *column = list_nth(condition->args, side);

			/* a cast that keeps the value; others could make two values one */
			if (IsA(column, RelabelType))
				column = (Var *) ((RelabelType *) column)->arg;
			if (IsA(column, Var) && column->varlevelsup == 0 && column->varno == OTHER && column->varattno > 0 &&
				!bms_is_member(OTHER, pull_varnos(NULL, list_nth(condition->args, 1 - side))))
			{
				columns = lappend_int(columns, column->varattno);
				operators = lappend_oid(operators, condition->opno);
				break;
			}
		}
	}
	return query_is_distinct_for(other, columns, operators);
}

/* What is left of an entry that nothing refers to any more. */
static void
forget_entry(Query *query, Index number)
{
	RangeTblEntry *entry = rt_fetch(number, query->rtable);
	RangeTblEntry *nothing = makeNode(RangeTblEntry);

	nothing->rtekind = RTE_RESULT;
	nothing->eref = makeAlias(entry->eref->aliasname, NIL);
	query->rtable = list_copy(query->rtable);
	lfirst(list_nth_cell(query->rtable, number - 1)) = nothing;
}

static bool
mentions(Node *node, Index number)
{
	return bms_is_member(number, pull_varnos(NULL, node));
}

/* The sub-query at an element of FROM that is joined last, and what it is joined with; 0: none. */
static Index
joined_last(Query *query, Node *element, JoinExpr **join)
{
	Node	   *last = element;

	*join = NULL;
	if (IsA(element, JoinExpr))
	{
		*join = (JoinExpr *) element;
		if ((*join)->jointype != JOIN_INNER || (*join)->alias || (*join)->usingClause)
			return 0;
		last = (*join)->rarg;
	}
	if (IsA(last, RangeTblRef))
	{
		Index		number = ((RangeTblRef *) last)->rtindex;
		RangeTblEntry *entry = rt_fetch(number, query->rtable);

		if (entry->rtekind == RTE_SUBQUERY)
			return number;
	}
	return 0;
}

/* Does the query read an entry, elsewhere than in FROM and WHERE? */
static bool
shows(Query *query, Index number)
{
	Node	   *shown = (Node *) list_make2(query->targetList, query->havingQual);

	return mentions(compat_before_grouping(query, shown), number);
}

/* The query without what goes around it, to be asked one level further in. */
static Query *
question(Query *query, List *targets, FromExpr *from)
{
	Query	   *result = makeNode(Query);
	ListCell   *cell;

	*result = *query;
	result->targetList = targets;
	foreach(cell, targets)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, cell);

		if (entry->resname == NULL)
			entry->resname = psprintf("column%d", entry->resno);
		entry->resjunk = false;
	}
	result->jointree = from;
	result->sortClause = result->distinctClause = result->windowClause = NIL;
	result->hasWindowFuncs = result->hasDistinctOn = false;
	result->limitCount = result->limitOffset = NULL;
	result->limitOption = LIMIT_OPTION_COUNT;
	return result;
}

/* SELECT ... FROM (the question) AS answer, the other WHERE conditions ORDER BY ... LIMIT ... of the query. */
static Query *
selection(Query *query, Query *asked, RangeTblEntry *other, List *conditions)
{
	Query	   *result = makeNode(Query);
	RangeTblEntry *answer = makeNode(RangeTblEntry);
	List	   *names = NIL;
	List	   *from = NIL;
	ListCell   *cell;

	result->commandType = CMD_SELECT;
	result->querySource = query->querySource;
	result->queryId = query->queryId;
	result->canSetTag = query->canSetTag;
	result->sortClause = query->sortClause;
	result->limitCount = query->limitCount;
	result->limitOffset = query->limitOffset;
	result->limitOption = query->limitOption;
	result->stmt_location = query->stmt_location;
	result->stmt_len = query->stmt_len;
	foreach(cell, asked->targetList)
		names = lappend(names, makeString(lfirst_node(TargetEntry, cell)->resname));
	answer->rtekind = RTE_SUBQUERY;
	answer->subquery = asked;
	answer->alias = makeAlias("answer", NIL);
	answer->eref = makeAlias("answer", names);
	answer->inFromCl = true;
	result->rtable = other ? list_make2(answer, other) : list_make1(answer);
	for (int i = ANSWER; i <= list_length(result->rtable); i++)
	{
		RangeTblRef *reference = makeNode(RangeTblRef);

		reference->rtindex = i;
		from = lappend(from, reference);
	}
	result->jointree = makeFromExpr(from, conditions ? (Node *) make_ands_explicit(conditions) : NULL);
	return result;
}

/* Take the sub-query at an element of FROM out of the query; false: it stays as it is. */
static bool
take_out(Query *query, int element)
{
	JoinExpr   *join;
	Index		number = joined_last(query, list_nth(query->jointree->fromlist, element), &join);
	Outward		moved = {query, number, false};
	RangeTblEntry *other;
	Query	   *asked;
	Query	   *around;
	List	   *conditions;
	List	   *from = list_copy(query->jointree->fromlist);
	List	   *inner = NIL;
	List	   *outer = NIL;
	ListCell   *cell;

	if (number == 0)
		return false;
	other = rt_fetch(number, query->rtable);
	conditions = list_concat_copy(make_ands_implicit((Expr *) query->jointree->quals),
								  join ? make_ands_implicit((Expr *) join->quals) : NIL);
	foreach(cell, conditions)
	{
		if (mentions(lfirst(cell), number))
			outer = lappend(outer, outward(lfirst(cell), &moved));
		else
			inner = lappend(inner, lfirst(cell));
	}
	if (moved.reads_rows || shows(query, number) || !finds_one(outer, other->subquery))
		return false;
	if (join && join->rtindex &&
		(shows(query, join->rtindex) || mentions((Node *) conditions, join->rtindex)))
		return false;
	if (join)
		lfirst(list_nth_cell(from, element)) = join->larg;
	else
		from = list_delete_nth_cell(from, element);
	asked = question(query, copyObject(query->targetList),
					 makeFromExpr(from, inner ? (Node *) make_ands_explicit(inner) : NULL));
	if (join && join->rtindex)
		forget_entry(asked, join->rtindex);
	forget_entry(asked, number);
	around = selection(query, asked, other, outer);
	foreach(cell, query->targetList)
	{
		TargetEntry *entry = flatCopyTargetEntry(lfirst_node(TargetEntry, cell));

		entry->expr = (Expr *) answer_column(entry);
		around->targetList = lappend(around->targetList, entry);
	}
	IncrementVarSublevelsUp((Node *) asked, 1, 1);
	*query = *around;
	return true;
}

typedef struct
{
	Query	   *query;
	List	   *targets;		/* of the question: keys and aggregates */
	bool		reads_rows;
} Grouped;

/* Is a private aggregate called as a window function? */
static bool
counts_in_window(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, WindowFunc) && is_private_aggregate(((WindowFunc *) node)->winfnoid))
		return true;
	return expression_tree_walker(node, counts_in_window, context);
}

/* An expression over the groups of a query as one over its answer. */
static Node *
over_answer(Node *node, void *context)
{
	Grouped    *grouped = (Grouped *) context;
	TargetEntry *found = NULL;
	ListCell   *cell;

	if (node == NULL)
		return NULL;
	foreach(cell, grouped->targets)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, cell);

		if (!IsA(node, Const) && !IsA(node, Param) &&
			(equal(entry->expr, node) ||
			 equal(compat_before_grouping(grouped->query, (Node *) entry->expr), node)))
			return (Node *) answer_column(entry);
	}
	/* an end of an interval hangs on the noise, which only the question knows */
	if ((IsA(node, Aggref) && ((Aggref *) node)->agglevelsup == 0) ||
		(IsA(node, FuncExpr) && is_interval_end(((FuncExpr *) node)->funcid)))
	{
		found = makeTargetEntry((Expr *) copyObject(node), list_length(grouped->targets) + 1, NULL, false);
		grouped->targets = lappend(grouped->targets, found);
		return (Node *) answer_column(found);
	}
	if (IsA(node, GroupingFunc) || (IsA(node, Var) && ((Var *) node)->varlevelsup == 0))
		grouped->reads_rows = true;
	return expression_tree_mutator(node, over_answer, context);
}

/* Put window functions around the query. */
static bool
windows_around(Query *query)
{
	Grouped		grouped = {query, NIL, false};
	Query	   *asked;
	Query	   *around;
	List	   *shown;
	ListCell   *cell;

	if (counts_in_window((Node *) query->targetList, NULL))
		return false;
	foreach(cell, query->groupClause)
	{
		TargetEntry *key = get_sortgroupclause_tle(lfirst_node(SortGroupClause, cell), query->targetList);

		key = flatCopyTargetEntry(key);
		key->expr = copyObject(key->expr);
		key->resno = list_length(grouped.targets) + 1;
		grouped.targets = lappend(grouped.targets, key);
	}
	shown = (List *) over_answer((Node *) query->targetList, &grouped);
	if (grouped.reads_rows || grouped.targets == NIL)
		return false;
	asked = question(query, grouped.targets, query->jointree);
	around = selection(query, asked, NULL, NIL);
	around->targetList = shown;
	around->windowClause = query->windowClause;
	around->hasWindowFuncs = true;
	around->distinctClause = query->distinctClause;
	around->hasDistinctOn = query->hasDistinctOn;
	IncrementVarSublevelsUp((Node *) asked, 1, 1);
	*query = *around;
	return true;
}

/* Put a join with an answer around the query, where it has one that chooses among its groups. */
static bool
join_around(Query *query)
{
	List	   *from = query->jointree->fromlist;
	ListCell   *cell;

	if (query->groupClause == NIL || query->distinctClause != NIL)
		return false;
	foreach(cell, query->rtable)
	{
		RangeTblEntry *entry = lfirst_node(RangeTblEntry, cell);

		/* these may read what stands before them */
		if (entry->lateral || entry->tablesample)
			return false;
	}
	for (int i = 0; i < list_length(from); i++)
	{
		if ((list_length(from) > 1 || IsA(linitial(from), JoinExpr)) && take_out(query, i))
			return true;
	}
	return false;
}

/*
 * Put around a query that combines rows what is no part of its question, one
 * kind at a time; false: nothing, the query is the question.
 */
bool
put_around(Query *query)
{
	if (query->groupingSets != NIL || query->hasTargetSRFs || query->hasSubLinks ||
		query->cteList != NIL || query->rowMarks != NIL || query->setOperations != NULL)
		return false;
	return query->hasWindowFuncs ? windows_around(query) : join_around(query);
}
