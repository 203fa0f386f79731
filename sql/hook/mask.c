/*
 * mask.c
 *		What dp.lockdown withholds reads as unknown instead of failing.
 *
 * The privilege is the lock: whoever may not execute pg_table_size, or read
 * pg_class.reltuples, does not learn it here or anywhere else.  But clients
 * ask for these among other things (psql's \dt+ and \l+, JDBC's indexes,
 * views such as pg_stat_user_tables), and the whole statement would end with
 * "permission denied".  So, in a statement about to be planned, each call and
 * each column that the role may not have becomes what PostgreSQL itself says
 * where it knows nothing: NULL, or -1 rows on 0 pages.  A statement that gets
 * around this meets the privilege.
 *
 * The planner's hook sees views expanded.  Plans that are kept are masked for
 * the role that planned them; whoever runs them later is checked as ever.
 */
#include "postgres.h"

#include "access/transam.h"
#include "catalog/pg_class.h"
#include "nodes/bitmapset.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/planner.h"
#include "parser/parsetree.h"
#include "utils/acl.h"
#include "utils/fmgroids.h"
#include "utils/fmgrtab.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "compat.h"
#include "dpsql.h"

typedef struct Level
{
	Query	   *query;
	struct Level *outer;
} Level;

static planner_hook_type previous_planner = NULL;
static Bitmapset *telling = NULL;	/* functions that may be masked */

/* Internal functions are known by their C names before any catalogue is read. */
static bool
is_telling(Oid function)
{
	if (function >= FirstNormalObjectId)
		return false;
	if (telling == NULL)
	{
		MemoryContext before = MemoryContextSwitchTo(TopMemoryContext);
		/* this one is defined in SQL */
		Bitmapset  *found = bms_make_singleton(F_PG_RELATION_SIZE_REGCLASS);

		for (int i = 0; i < fmgr_nbuiltins; i++)
		{
			const char *name = fmgr_builtins[i].funcName;

			if (strncmp(name, "pg_stat_get_", 12) == 0 ||
				strcmp(name, "pg_relation_size") == 0 ||
				strcmp(name, "pg_table_size") == 0 ||
				strcmp(name, "pg_indexes_size") == 0 ||
				strcmp(name, "pg_total_relation_size") == 0 ||
				strncmp(name, "pg_database_size_", 17) == 0 ||
				strncmp(name, "pg_tablespace_size_", 19) == 0)
				found = bms_add_member(found, fmgr_builtins[i].foid);
		}
		telling = found;
		MemoryContextSwitchTo(before);
	}
	return bms_is_member(function, telling);
}

/* A column of pg_class that follows the rows of a relation, and what it is where nothing is known. */
static Const *
unknown_column(AttrNumber column)
{
	switch (column)
	{
		case Anum_pg_class_reltuples:
			return makeConst(FLOAT4OID, -1, InvalidOid, sizeof(float4), Float4GetDatum(-1), false, true);
		case Anum_pg_class_relpages:
		case Anum_pg_class_relallvisible:
#if PG_VERSION_NUM >= 180000
		case Anum_pg_class_relallfrozen:
#endif
			return makeConst(INT4OID, -1, InvalidOid, sizeof(int32), Int32GetDatum(0), false, true);
		case Anum_pg_class_relfrozenxid:
		case Anum_pg_class_relminmxid:
			return makeConst(XIDOID, -1, InvalidOid, sizeof(TransactionId),
							 TransactionIdGetDatum(InvalidTransactionId), false, true);
		default:
			return NULL;
	}
}

static bool
is_withheld(Query *query, RangeTblEntry *rte, AttrNumber column)
{
	Oid			role;

	if (rte->rtekind != RTE_RELATION || rte->relid != RelationRelationId ||
		unknown_column(column) == NULL)
		return false;
	role = compat_reads_as(query, rte);
	return pg_class_aclcheck(RelationRelationId, role, ACL_SELECT) != ACLCHECK_OK &&
		pg_attribute_aclcheck(RelationRelationId, column, role, ACL_SELECT) != ACLCHECK_OK;
}

/* Is there anything at all that could have to be masked? */
static bool
tells(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Query))
	{
		ListCell   *cell;

		foreach(cell, ((Query *) node)->rtable)
		{
			RangeTblEntry *rte = (RangeTblEntry *) lfirst(cell);

			if (rte->rtekind == RTE_RELATION && rte->relid == RelationRelationId)
				return true;
		}
		return query_tree_walker((Query *) node, tells, context, 0);
	}
	if (IsA(node, FuncExpr) && is_telling(((FuncExpr *) node)->funcid))
		return true;
	return expression_tree_walker(node, tells, context);
}

static Node *
masked(Node *node, void *context)
{
	Level	   *level = (Level *) context;

	if (node == NULL)
		return NULL;
	if (IsA(node, Query))
	{
		Level		inner = {(Query *) node, level};
		Query	   *query = query_tree_mutator((Query *) node, masked, &inner, 0);
		ListCell   *cell;

		/* No expression reads a withheld column any more, so none is asked for. */
		foreach(cell, query->rtable)
		{
			RangeTblEntry *rte = (RangeTblEntry *) lfirst(cell);

			for (AttrNumber column = 1; column <= Natts_pg_class; column++)
				if (is_withheld(query, rte, column))
					compat_reads_no_more(query, rte, column);
		}
		return (Node *) query;
	}
	if (IsA(node, Var))
	{
		Var		   *var = (Var *) node;
		Level	   *owner = level;

		for (Index up = var->varlevelsup; up > 0 && owner != NULL; up--)
			owner = owner->outer;
		if (owner != NULL && var->varattno > 0 && !IS_SPECIAL_VARNO(var->varno) &&
			is_withheld(owner->query, rt_fetch(var->varno, owner->query->rtable), var->varattno))
			return (Node *) unknown_column(var->varattno);
		return (Node *) copyObject(var);
	}
	if (IsA(node, FuncExpr))
	{
		FuncExpr   *call = (FuncExpr *) node;

		if (is_telling(call->funcid) && !call->funcretset && !type_is_rowtype(call->funcresulttype) &&
			!compat_may_call(call->funcid, GetUserId()))
			return (Node *) makeNullConst(call->funcresulttype, -1, call->funccollid);
	}
	return expression_tree_mutator(node, masked, context);
}

static PlannedStmt *
plan_masked(Query *query, const char *source, int options, ParamListInfo parameters)
{
	if (tells((Node *) query, NULL))
		query = (Query *) masked((Node *) query, NULL);
	return previous_planner ? previous_planner(query, source, options, parameters)
		: standard_planner(query, source, options, parameters);
}

void
mask_init(void)
{
	previous_planner = planner_hook;
	planner_hook = plan_masked;
}
