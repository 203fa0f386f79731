/*
 * claims.c
 *		NOT NULL of rows that nobody checked is no fact for a plan.
 *
 * From 17 on the planner leaves out IS NOT NULL, and takes IS NULL for false,
 * where a column is NOT NULL.  For a foreign table, and a partitioned table
 * that may have foreign partitions, NOT NULL is only a claim.  A row without a
 * privacy unit would be counted, and a row that a condition names would not.
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "nodes/pathnodes.h"
#include "optimizer/plancat.h"
#include "utils/lsyscache.h"

#include "compat.h"
#include "dpsql.h"

static get_relation_info_hook_type previous_relation_info = NULL;

static void
forget_claims(PlannerInfo *root, Oid relation, bool inherited, RelOptInfo *info)
{
	char		kind = get_rel_relkind(relation);

	if (previous_relation_info)
		previous_relation_info(root, relation, inherited, info);
	if ((kind == RELKIND_FOREIGN_TABLE || kind == RELKIND_PARTITIONED_TABLE) && executor_runs())
		compat_forget_not_null(info);
}

void
claims_init(void)
{
	previous_relation_info = get_relation_info_hook;
	get_relation_info_hook = forget_claims;
}
