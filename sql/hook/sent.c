/*
 * sent.c
 *		What dpsql counts of other servers is counted there, whatever is cheaper.
 *
 * The planner compares what it believes a join or a grouping to cost on the
 * other server with fetching the rows and doing it here.  It knows little of
 * the rows there: it takes each row to be compared with each other one to
 * join them, and where it expects nearly as many groups as rows it fetches the
 * rows.  Rows of a protected relation are not to travel, so for dp_executor it
 * is no choice: the foreign data wrapper is asked again where no other path is
 * there to win, and if it can do all, nothing else is considered.  Results are
 * the same, as they are whatever the planner chooses.
 */
#include "postgres.h"

#include "foreign/fdwapi.h"
#include "nodes/pathnodes.h"
#include "optimizer/clauses.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/planner.h"

#include "dpsql.h"

static set_join_pathlist_hook_type previous_join = NULL;
static create_upper_paths_hook_type previous_upper = NULL;

static List *
only_foreign(List *paths)
{
	List	   *found = NIL;
	ListCell   *cell;

	foreach(cell, paths)
		if (IsA(lfirst(cell), ForeignPath))
			found = lappend(found, lfirst(cell));
	return found;
}

/* May rel be left to its wrapper, if that takes it? */
static bool
is_ours(PlannerInfo *root, RelOptInfo *rel)
{
	return rel->fdwroutine != NULL && root->parse->commandType == CMD_SELECT &&
		root->parse->rowMarks == NIL && rel->pathlist != NIL && executor_runs();
}

/*
 * A wrapper adds its paths once and knows by fdw_private that it has; a path
 * that seemed dearer than those that were there is gone by now.  So it meets
 * an empty list and forgets, and if it cannot do all either all is as before.
 */
static void
alone(RelOptInfo *rel, List **paths, List **partial, void **private)
{
	*paths = rel->pathlist;
	*partial = rel->partial_pathlist;
	*private = rel->fdw_private;
	rel->pathlist = NIL;
	rel->partial_pathlist = NIL;
	rel->fdw_private = NULL;
}

static void
settle(RelOptInfo *rel, List *paths, List *partial, void *private)
{
	List	   *found = only_foreign(rel->pathlist);

	if (found != NIL)
	{
		rel->pathlist = found;
		return;
	}
	rel->pathlist = paths;
	rel->partial_pathlist = partial;
	rel->fdw_private = private;
}

static void
join_there(PlannerInfo *root, RelOptInfo *joined, RelOptInfo *outer, RelOptInfo *inner,
		   JoinType type, JoinPathExtraData *extra)
{
	if (previous_join)
		previous_join(root, joined, outer, inner, type, extra);
	if (is_ours(root, joined) && joined->fdwroutine->GetForeignJoinPaths)
	{
		List	   *paths;
		List	   *partial;
		void	   *private;

		alone(joined, &paths, &partial, &private);
		joined->fdwroutine->GetForeignJoinPaths(root, joined, outer, inner, type, extra);
		settle(joined, paths, partial, private);
	}
}

/*
 * Of "SELECT count(*) FROM t" whose count nobody reads postgres_fdw would send
 * "SELECT NULL FROM t", which has as many rows as t instead of one.
 */
static bool
is_one_row(PlannerInfo *root, UpperRelationKind stage, RelOptInfo *output)
{
	return stage == UPPERREL_GROUP_AGG && root->parse->groupClause == NIL &&
		!contain_agg_clause((Node *) output->reltarget->exprs) &&
		!contain_agg_clause(root->parse->havingQual);
}

static void
count_there(PlannerInfo *root, UpperRelationKind stage, RelOptInfo *input, RelOptInfo *output,
			void *extra)
{
	if (previous_upper)
		previous_upper(root, stage, input, output, extra);
	if (!is_ours(root, output) || !output->fdwroutine->GetForeignUpperPaths)
		return;
	if (is_one_row(root, stage, output))
	{
		Path	   *row = (Path *) create_group_result_path(root, output, output->reltarget,
															(List *) root->parse->havingQual);

		output->pathlist = list_make1(row);
		output->partial_pathlist = NIL;
		output->fdw_private = NULL; /* nor is it sorted or cut off there */
	}
	else
	{
		List	   *paths;
		List	   *partial;
		void	   *private;

		alone(output, &paths, &partial, &private);
		output->fdwroutine->GetForeignUpperPaths(root, stage, input, output, extra);
		settle(output, paths, partial, private);
	}
}

void
sent_init(void)
{
	previous_join = set_join_pathlist_hook;
	set_join_pathlist_hook = join_there;
	previous_upper = create_upper_paths_hook;
	create_upper_paths_hook = count_there;
}
