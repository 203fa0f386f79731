/*
 * members.c
 *		What belongs to the extension, by OID and never by name alone.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/transam.h"
#include "catalog/dependency.h"
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_proc.h"
#include "commands/extension.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "dpsql.h"

PG_FUNCTION_INFO_V1(dpsql_library_version);

static bool
is_member(Oid function)
{
	Oid			extension = getExtensionOfObject(ProcedureRelationId, function);

	return OidIsValid(extension) &&
		extension == get_extension_oid(DPSQL_EXTENSION, true);
}

/*
 * The name only keeps other people's functions from costing a look into
 * pg_depend: membership decides.
 */
static bool
is_member_called(Oid function, char kind, const char *prefix)
{
	HeapTuple	tuple;
	Form_pg_proc form;
	bool		candidate;

	if (function < FirstNormalObjectId)
		return false;
	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	if (!HeapTupleIsValid(tuple))
		return false;
	form = (Form_pg_proc) GETSTRUCT(tuple);
	candidate = form->prokind == kind &&
		strncmp(NameStr(form->proname), prefix, strlen(prefix)) == 0;
	ReleaseSysCache(tuple);
	return candidate && is_member(function);
}

/*
 * Is this one of the aggregates that may only be answered privately?
 *
 * Those are the extension's aggregates whose name starts with "dp_"; helpers
 * such as dp.pack are ordinary.
 */
bool
is_private_aggregate(Oid function)
{
	return is_member_called(function, PROKIND_AGGREGATE, "dp_");
}

/* Is this dp_interval_low or dp_interval_high, which mean something beside an aggregate only? */
bool
is_interval_end(Oid function)
{
	return is_member_called(function, PROKIND_FUNCTION, "dp_interval_");
}

/* dp.library_version(): what the server holds in memory, whatever the files say by now. */
Datum
dpsql_library_version(PG_FUNCTION_ARGS)
{
	PG_RETURN_TEXT_P(cstring_to_text(DPSQL_VERSION));
}

/* The version of the SQL objects in this database, or NULL. */
static char *
installed_version(void)
{
	Relation	extensions = table_open(ExtensionRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	char	   *version = NULL;

	ScanKeyInit(&key, Anum_pg_extension_extname, BTEqualStrategyNumber, F_NAMEEQ,
				CStringGetDatum(DPSQL_EXTENSION));
	scan = systable_beginscan(extensions, ExtensionNameIndexId, true, NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		bool		isnull;
		Datum		datum = heap_getattr(tuple, Anum_pg_extension_extversion,
										 RelationGetDescr(extensions), &isnull);

		if (!isnull)
			version = TextDatumGetCString(datum);
	}
	systable_endscan(scan);
	table_close(extensions, AccessShareLock);
	return version;
}

/*
 * SQL objects of another version may mean something else by the same names, so
 * nothing is answered with them.  Looked up every time: another session may
 * run ALTER EXTENSION at any moment.
 */
void
require_same_version(void)
{
	char	   *version = installed_version();

	if (version == NULL || strcmp(version, DPSQL_VERSION) == 0)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_DPSQL_VERSION),
			 errmsg("the extension dpsql in this database and the library of the server are of different versions"),
			 errdetail("The extension is of version %s, the library of version %s.",
					   version, DPSQL_VERSION),
			 errhint("A superuser must run ALTER EXTENSION dpsql UPDATE in this database, and restart the server if that changes nothing.")));
}

/* A function of the extension in its own schema, whatever search_path says. */
Oid
member_function(const char *name, int nargs, const Oid *types)
{
	Oid			schema = get_namespace_oid(DPSQL_SCHEMA, true);
	oidvector  *signature = buildoidvector(types, nargs);
	Oid			function = InvalidOid;

	require_same_version();
	if (OidIsValid(schema))
		function = GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid,
								   CStringGetDatum(name),
								   PointerGetDatum(signature),
								   ObjectIdGetDatum(schema));
	if (!OidIsValid(function) || !is_member(function))
		ereport(ERROR,
				(errcode(ERRCODE_DPSQL_VERSION),
				 errmsg("the extension dpsql has no function %s.%s of this version's form",
						DPSQL_SCHEMA, name),
				 errdetail("The loaded library and the installed extension are of different versions."),
				 errhint("Run ALTER EXTENSION dpsql UPDATE and start a new session.")));
	return function;
}
