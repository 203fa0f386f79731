/*
 * triggers.c
 *		No function of dpsql is called by code that runs as another role in a trigger.
 *
 * The actions of a foreign key (ON DELETE CASCADE and the like) run as the owner
 * of the referencing table, inside the statement of the role that changes the
 * referenced table; so do BEFORE triggers, defaults and index expressions of the
 * referencing table, and from PostgreSQL 18 on its AFTER triggers.  That code is the
 * owner's, and the role whose statement it is never called it.  A function of dpsql
 * would take that role for the one that asks, pays and administers.
 *
 * A SECURITY DEFINER function that a role calls itself is another matter: that role
 * asks and pays.  Functions of dpsql are such functions, so that below them the
 * current user tells nothing any more; object_access_hook sees their call while
 * it is still the caller's.
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_proc.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"

#include "dpsql.h"

static object_access_hook_type previous_hook = NULL;

static void
refuse_trigger(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_DPSQL_PERMISSION),
			 errmsg("functions of dpsql cannot be used inside a trigger that runs with the rights of another role"),
			 errdetail("The actions of foreign keys run as the owner of the referencing table."),
			 errhint("Call them in a statement of their own.")));
}

/* Refuse inside the action of a foreign key, also below a SECURITY DEFINER function. */
void
require_no_foreign_key_action(void)
{
	if (InNoForceRLSOperation())
		refuse_trigger();
}

/* Superusers, dp_ledger and dp_executor own the functions of dpsql, which call each other. */
static bool
runs_as_another_role(void)
{
	Oid			user = GetUserId();

	return user != GetOuterUserId() && !superuser_arg(user) &&
		user != get_role_oid("dp_ledger", true) && user != get_role_oid("dp_executor", true);
}

static void
check_called(ObjectAccessType access, Oid class, Oid object, int column, void *arg)
{
	if (previous_hook)
		previous_hook(access, class, object, column, arg);
	if (access == OAT_FUNCTION_EXECUTE && GetUserId() != GetOuterUserId() &&
		DatumGetInt32(OidFunctionCall0(F_PG_TRIGGER_DEPTH)) > 0 &&
		get_func_namespace(object) == get_namespace_oid(DPSQL_SCHEMA, true) &&
		runs_as_another_role())
		refuse_trigger();
}

void
triggers_init(void)
{
	previous_hook = object_access_hook;
	object_access_hook = check_called;
}
