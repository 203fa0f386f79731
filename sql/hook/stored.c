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
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/indexing.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_policy.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_rewrite.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"

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

static void
check_stored(ObjectAccessType access, Oid class, Oid object, int column, void *arg)
{
	const char *kind = NULL;
	Oid			aggregate;

	if (previous_hook)
		previous_hook(access, class, object, column, arg);
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
