/*
 * claims.c
 *		Hide from the planner what plans over protected rows must not use.
 *
 * From PostgreSQL 17 on the planner removes IS NOT NULL, and folds IS NULL to
 * false, for columns that are declared NOT NULL.  Nobody enforces NOT NULL for
 * foreign tables, nor for partitioned tables with foreign partitions.  There
 * rows without a privacy unit would be counted, and a condition IS NULL would
 * not find its rows.
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "nodes/pathnodes.h"
#include "optimizer/paths.h"
#include "optimizer/plancat.h"
#include "utils/lsyscache.h"

#include "compat.h"
#include "dpsql.h"

static get_relation_info_hook_type previous_relation_info = NULL;
static set_rel_pathlist_hook_type previous_pathlist = NULL;

static void
forget_claims(PlannerInfo *root, Oid relation, bool inherited, RelOptInfo *info)
{
	char		kind = get_rel_relkind(relation);

	if (previous_relation_info)
		previous_relation_info(root, relation, inherited, info);
	if ((kind == RELKIND_FOREIGN_TABLE || kind == RELKIND_PARTITIONED_TABLE) && executor_runs())
		compat_forget_not_null(info);
}

/*
 * Remove parallel bitmap scans from the plans of dp_executor.  Their bitmap is
 * in dynamic shared memory and grows with the pages of the rows that match.
 * Other statements can fill that memory, which is small in containers, until
 * one row decides whether the question fails.
 */
static void
forget_shared_bitmaps(PlannerInfo *root, RelOptInfo *relation, Index index, RangeTblEntry *entry)
{
	ListCell   *cell;

	if (previous_pathlist)
		previous_pathlist(root, relation, index, entry);
	if (!executor_runs())
		return;
	foreach(cell, relation->partial_pathlist)
	{
		if (IsA(lfirst(cell), BitmapHeapPath))
			relation->partial_pathlist = foreach_delete_current(relation->partial_pathlist, cell);
	}
}

void
claims_init(void)
{
	previous_relation_info = get_relation_info_hook;
	get_relation_info_hook = forget_claims;
	previous_pathlist = set_rel_pathlist_hook;
	set_rel_pathlist_hook = forget_shared_bitmaps;
}
