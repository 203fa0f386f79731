/*
 * stored.c
 *		Nothing that holds a private aggregate is stored un-intercepted.
 *
 * Rules, row-security policies and BEGIN ATOMIC bodies are analysed without
 * post_parse_analyze_hook and kept as trees that would later run as they are
 * (and then fail with PD060).  PostgreSQL has just recorded what such an
 * object depends on when it calls object_access_hook; if a private aggregate
 * is among it the creation is refused.  Views and materialized views never
 * are: their definition was replaced before it was stored.
 *
 * The same hook of PostgreSQL keeps others' code from running as dp_executor.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/transam.h"
#include "catalog/indexing.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_policy.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_rewrite.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "dpsql.h"

static object_access_hook_type previous_hook = NULL;

/*
 * The private aggregate that an object depends on, or InvalidOid.  The
 * dependencies are of the running command, which only SnapshotSelf sees.
 */
static Oid
private_dependency(Oid class, Oid object)
{
	Relation	depend = table_open(DependRelationId, AccessShareLock);
	Oid			found = InvalidOid;
	ScanKeyData key[2];
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key[0], Anum_pg_depend_classid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(class));
	ScanKeyInit(&key[1], Anum_pg_depend_objid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(object));
	scan = systable_beginscan(depend, DependDependerIndexId, true, SnapshotSelf, 2, key);
	while (!OidIsValid(found) && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_depend form = (Form_pg_depend) GETSTRUCT(tuple);

		if (form->refclassid == ProcedureRelationId && is_private_aggregate(form->refobjid))
			found = form->refobjid;
	}
	systable_endscan(scan);
	table_close(depend, AccessShareLock);
	return found;
}

/*
 * Code that somebody attached to a relation (an index expression, a CHECK, a
 * domain's CHECK) and that planning or execution would run as dp_executor,
 * who reads every protected row.  dp.foreign_code refuses such relations
 * beforehand; this closes the moment between that look and the use.
 */
static void
check_executed(Oid function)
{
	HeapTuple	tuple;
	Oid			owner;

	if (function < FirstNormalObjectId ||
		GetUserId() != get_role_oid("dp_executor", true))
		return;
	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	if (!HeapTupleIsValid(tuple))
		return;
	owner = ((Form_pg_proc) GETSTRUCT(tuple))->proowner;
	ReleaseSysCache(tuple);
	if (owner != GetUserId() && !superuser_arg(owner))
		ereport(ERROR,
				(errcode(ERRCODE_DPSQL_UNSUPPORTED),
				 errmsg("a relation of the question runs code of its owner"),
				 errdetail("Function %s is neither built in nor owned by a superuser.",
						   get_func_name(function)),
				 errhint("Its owner can drop the index, constraint or partition key that uses it.")));
}

static void
check_stored(ObjectAccessType access, Oid class, Oid object, int column, void *arg)
{
	const char *kind = NULL;
	Oid			aggregate;

	if (previous_hook)
		previous_hook(access, class, object, column, arg);
	if (access == OAT_FUNCTION_EXECUTE)
	{
		check_executed(object);
		return;
	}
	if (access != OAT_POST_CREATE && access != OAT_POST_ALTER)
		return;
	if (class == RewriteRelationId)
		kind = "a rule";
	else if (class == PolicyRelationId)
		kind = "a row-security policy";
	else if (class == ProcedureRelationId)
		kind = "a BEGIN ATOMIC or RETURN function body";
	else
		return;
	aggregate = private_dependency(class, object);
	if (OidIsValid(aggregate))
		ereport(ERROR,
				(errcode(ERRCODE_DPSQL_UNSUPPORTED),
				 errmsg("%s cannot hold the private aggregate %s", kind, get_func_name(aggregate)),
				 errhint("Use a view, or a function whose body is a string: AS $$ SELECT ... $$.")));
}

void
stored_init(void)
{
	previous_hook = object_access_hook;
	object_access_hook = check_stored;
}
