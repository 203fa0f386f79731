/*
 * prune.c
 *		Takes out of a question the columns of its sub-queries that nobody reads.
 *
 * An exposed view brings all its columns, SELECT * passes them on, and each has
 * a type and a collation.  What a question uses is part of what it is: without
 * the rest, count(*) over a view is the question that dp_count(*) over the
 * relation is, with one stored answer.  The columns keep their names and places.
 */
#include "postgres.h"

#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "parser/parsetree.h"

#include "dpsql.h"

/* What is read of each entry of a query's range table, by number; 0: the whole row. */
typedef struct
{
	Query	   *query;
	Bitmapset **read;
	int			depth;			/* queries between here and that one */
} Reads;

/* What is read of a WITH query. */
typedef struct
{
	CommonTableExpr *cte;
	Bitmapset  *read;
} ReadOfWith;

typedef struct Around
{
	Query	   *query;
	List	   *with;			/* ReadOfWith */
	struct Around *outer;
} Around;

static void prune_query(Query *query, Around *outer);

static bool
collect_reads(Node *node, void *context)
{
	Reads	   *reads = (Reads *) context;

	if (node == NULL)
		return false;
	if (IsA(node, Var))
	{
		Var		   *var = (Var *) node;
		RangeTblEntry *rte;

		if (var->varlevelsup != reads->depth)
			return false;
		rte = rt_fetch(var->varno, reads->query->rtable);
		reads->read[var->varno] = bms_add_member(reads->read[var->varno], Max(var->varattno, 0));
		if (rte->rtekind == RTE_JOIN)
		{
			int			depth = reads->depth;

			/* what stands behind is of the query's own level */
			reads->depth = 0;
			if (var->varattno > 0)
				collect_reads(list_nth(rte->joinaliasvars, var->varattno - 1), context);
			else
				collect_reads((Node *) rte->joinaliasvars, context);
			reads->depth = depth;
		}
		return false;
	}
	if (IsA(node, Query))
	{
		reads->depth++;
		query_tree_walker((Query *) node, collect_reads, context, QTW_IGNORE_JOINALIASES);
		reads->depth--;
		return false;
	}
	return expression_tree_walker(node, collect_reads, context);
}

/* Let columns that are not read be NULLs, of a type that every question can name. */
static void
prune_columns(Query *query, Bitmapset *read)
{
	ListCell   *cell;

	if (bms_is_member(0, read) || query->commandType != CMD_SELECT ||
		query->setOperations || query->hasTargetSRFs)
		return;
	foreach(cell, query->targetList)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, cell);

		if (!entry->resjunk && entry->ressortgroupref == 0 && !bms_is_member(entry->resno, read))
			entry->expr = (Expr *) makeNullConst(TEXTOID, -1, DEFAULT_COLLATION_OID);
	}
}

/* Note what is read of a WITH query, which may be one of a query around. */
static void
read_with(RangeTblEntry *rte, Around *around, Bitmapset *read)
{
	ListCell   *cell;

	for (Index up = rte->ctelevelsup; up > 0 && around; up--)
		around = around->outer;
	foreach(cell, around ? around->with : NIL)
	{
		ReadOfWith *with = (ReadOfWith *) lfirst(cell);

		if (strcmp(with->cte->ctename, rte->ctename) == 0)
			with->read = bms_add_members(with->read, read);
	}
}

/* Sub-queries of expressions; those in FROM were looked at. */
static bool
prune_inside(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Query))
	{
		prune_query((Query *) node, (Around *) context);
		return false;
	}
	return expression_tree_walker(node, prune_inside, context);
}

static void
prune_query(Query *query, Around *outer)
{
	Around		around = {query, NIL, outer};
	Reads		reads = {query, palloc0(sizeof(Bitmapset *) * (list_length(query->rtable) + 1)), 0};
	ListCell   *cell;
	int			number = 0;

	check_stack_depth();
	foreach(cell, query->cteList)
	{
		ReadOfWith *with = palloc0(sizeof(ReadOfWith));

		with->cte = lfirst_node(CommonTableExpr, cell);
		around.with = lappend(around.with, with);
	}
	query_tree_walker(query, collect_reads, &reads, QTW_IGNORE_JOINALIASES);
	foreach(cell, query->rtable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, cell);
		Bitmapset  *read = reads.read[++number];

		if (rte->rtekind == RTE_SUBQUERY)
		{
			/* all columns of an arm of a set operation are compared or passed on */
			if (!query->setOperations)
				prune_columns(rte->subquery, read);
			prune_query(rte->subquery, &around);
		}
		else if (rte->rtekind == RTE_CTE)
			read_with(rte, &around, read);
	}
	query_tree_walker(query, prune_inside, &around,
					  QTW_IGNORE_JOINALIASES | QTW_IGNORE_RT_SUBQUERIES | QTW_IGNORE_CTE_SUBQUERIES);
	/* only those that follow read a WITH query */
	for (int i = list_length(around.with) - 1; i >= 0; i--)
	{
		ReadOfWith *with = (ReadOfWith *) list_nth(around.with, i);
		Query	   *definition = (Query *) with->cte->ctequery;

		if (!IsA(definition, Query))
			continue;
		if (!with->cte->cterecursive)
			prune_columns(definition, with->read);
		prune_query(definition, &around);
	}
}

/* Prune, in place, a query that stands alone. */
void
prune_unread(Query *query)
{
	prune_query(query, NULL);
}
