/*
 * denied.c
 *		What is said to a role that wants rows of a protected relation.
 *
 * A view of the schema dpv that stands for such a relation refuses when a row
 * is asked for.  Selecting from the relation itself stays PostgreSQL's own
 * refusal, which gets a hint where the role may know of the relation.  Both
 * hints are written by dp.instead_of_rows.
 *
 * PostgreSQL refuses when a statement starts, after it was planned, and a plan
 * holds estimates: how many rows a relation has and, by its statistics and the
 * ends of its indexes, how many have which values.  SET debug_print_plan and
 * client_min_messages show it to whoever asked (PRIVACY.md section 2).  So the
 * refusal comes when the planner has opened a relation, before it says anything.
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type_d.h"
#include "commands/extension.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/pathnodes.h"
#include "optimizer/plancat.h"
#include "parser/parsetree.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "compat.h"
#include "dpsql.h"

PG_FUNCTION_INFO_V1(dpsql_refuse_rows);

static ExecutorStart_hook_type previous_start = NULL;
static get_relation_info_hook_type previous_relation_info = NULL;

/* dp.refuse_rows(name): the only row source of a view that refuses. */
Datum
dpsql_refuse_rows(PG_FUNCTION_ARGS)
{
	Oid			types[] = {NAMEOID};
	Datum		told = OidFunctionCall1(member_function("rows_refused", 1, types),
										PG_GETARG_DATUM(0));
	int			count;
	const char *const *parts = text_array_values(DatumGetArrayTypeP(told), &count);

	Assert(count == 3);
	ereport(ERROR,
			(errcode(ERRCODE_DPSQL_NOT_ANSWERABLE),
			 errmsg("%s", parts[0]),
			 errdetail("%s", parts[1]),
			 errhint("%s", parts[2])));
	PG_RETURN_NULL();			/* not reached */
}

/* Will PostgreSQL refuse the role to read any column of the relation? */
static bool
is_denied(Oid relation, Oid role)
{
	return pg_class_aclcheck(relation, role, ACL_SELECT) != ACLCHECK_OK &&
		pg_attribute_aclcheck_all(relation, role, ACL_SELECT, ACLMASK_ANY) != ACLCHECK_OK;
}

/* The hint, or NULL. */
static char *
instead_of_rows(Oid relation)
{
	LOCAL_FCINFO(call, 1);
	Oid			types[] = {OIDOID};
	FmgrInfo	function;
	Datum		told;

	fmgr_info(member_function("instead_of_rows", 1, types), &function);
	InitFunctionCallInfoData(*call, &function, 1, InvalidOid, NULL, NULL);
	call->args[0].value = ObjectIdGetDatum(relation);
	call->args[0].isnull = false;
	told = FunctionCallInvoke(call);
	return call->isnull ? NULL : TextDatumGetCString(told);
}

/*
 * Raise PostgreSQL's error with a hint, if a statement is about to fail for a
 * table that the asking role itself may not read.  Code of definers and
 * maintenance are on nobody's behalf.
 */
static void
explain_denial(List *permissions)
{
	ListCell   *cell;
	Oid			user;
	int			context;

	GetUserIdAndSecContext(&user, &context);
	if (user != GetOuterUserId() || (context & SECURITY_RESTRICTED_OPERATION) ||
		IsParallelWorker() || !IsTransactionState() || superuser_arg(user))
		return;
	foreach(cell, permissions)
	{
		Oid			relation = compat_only_read(lfirst(cell));
		char	   *hint;

		if (!OidIsValid(relation) || !is_denied(relation, user))
			continue;
		if ((get_rel_relkind(relation) != RELKIND_RELATION &&
			 get_rel_relkind(relation) != RELKIND_PARTITIONED_TABLE) ||
			!OidIsValid(get_extension_oid(DPSQL_EXTENSION, true)))
			return;
		hint = instead_of_rows(relation);
		if (hint != NULL)
			ereport(ERROR,
					(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
					 errmsg("permission denied for table %s", get_rel_name(relation)),
					 errhint("%s", hint)));
		return;
	}
}

static void
start(QueryDesc *query, int flags)
{
	explain_denial(compat_permissions(query->plannedstmt));
	if (previous_start)
		previous_start(query, flags);
	else
		standard_ExecutorStart(query, flags);
}

/* Raise PostgreSQL's error for a permission that is not given, with a hint where there is one. */
static void
refuse(void *asked)
{
	explain_denial(list_make1(asked));
	(void) compat_check_permission(asked, true);
}

/* Raise the error of the first relation that may not be read: outer queries first, in the executor's order. */
static void
raise_denial(PlannerInfo *root)
{
	ListCell   *cell;

	if (root->parent_root != NULL)
		raise_denial(root->parent_root);
	foreach(cell, root->parse->rtable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, cell);
		void	   *asked = rte->rtekind == RTE_RELATION ? compat_permission(root->parse, rte) : NULL;

		if (asked != NULL && !compat_check_permission(asked, false))
			refuse(asked);
	}
}

/* No plan over a relation that may not be read; parts of a relation are asked about as the whole. */
static void
before_planning(PlannerInfo *root, Oid relation, bool inherited, RelOptInfo *info)
{
	void	   *asked = compat_permission(root->parse, planner_rt_fetch(info->relid, root));

	if (previous_relation_info)
		previous_relation_info(root, relation, inherited, info);
	if (asked != NULL && !compat_check_permission(asked, false))
	{
		raise_denial(root);
		/* the relation itself, should no query of the chain name it */
		refuse(asked);
	}
}

void
denied_init(void)
{
	previous_start = ExecutorStart_hook;
	ExecutorStart_hook = start;
	previous_relation_info = get_relation_info_hook;
	get_relation_info_hook = before_planning;
}
