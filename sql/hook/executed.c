/*
 * executed.c
 *		No code of others runs as dp_executor, who reads every protected row.
 *
 * What the analyser allowed was allowed by name in the end: the counting SQL
 * names types and relations, and a name can come to mean something else
 * before the statement is read.  So every statement is looked at again where
 * nothing can change any more: in the very tree that will be executed.
 *
 * An array, row or range literal with a domain in it runs the domain's CHECK while
 * the text is analysed.  A CHECK can be made of built-in functions alone, which read
 * any table, change settings and tell what the session keeps in its caches of the
 * rows that it read for the question before.  So a service session refuses such
 * literals before it reads them, and calls no function while it analyses a text.
 * The Python side writes no such literal itself.
 *
 * A relation can also carry its owner's code (an index expression, a CHECK),
 * which no statement shows.  object_access_hook sees every function that the
 * executor is about to call, but not one that the planner puts into the query
 * as text: needs_fmgr_hook forbids that.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_class.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "parser/analyze.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "dpsql.h"
#include "inventory.h"
#include "service.h"

static object_access_hook_type previous_access_hook = NULL;
static needs_fmgr_hook_type previous_needs_hook = NULL;
static post_parse_analyze_hook_type previous_analyze_hook = NULL;

bool
executor_runs(void)
{
	return IsTransactionState() && GetUserId() == get_role_oid("dp_executor", true);
}

/* Whether code of others is refused here: a service session runs none, even while it analyses a text. */
static bool
code_is_refused(void)
{
	return executor_runs() || (is_serving() && IsTransactionState());
}

/* dp_ledger owns the ledger's functions; nobody is or becomes this role or dp_executor. */
static bool
is_trusted(Oid owner)
{
	return (executor_runs() && owner == GetUserId()) || superuser_arg(owner) ||
		owner == get_role_oid("dp_ledger", true);
}

/* A function that neither PostgreSQL nor a superuser, as of an extension, wrote. */
static bool
is_foreign(Oid function)
{
	HeapTuple	tuple;
	bool		foreign;

	if (function < FirstNormalObjectId || !code_is_refused())
		return false;
	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	if (!HeapTupleIsValid(tuple))
		return false;
	foreign = !is_trusted(((Form_pg_proc) GETSTRUCT(tuple))->proowner);
	ReleaseSysCache(tuple);
	return foreign;
}

static void
refuse_function(Oid function)
{
	ereport(ERROR,
			(errcode(ERRCODE_DPSQL_UNSUPPORTED),
			 errmsg("a relation or type of the question runs code of its owner"),
			 errdetail("Function %s is neither built in nor owned by a superuser.",
					   get_func_name(function)),
			 errhint("Its owner can drop the index, constraint, partition key or cast that uses it.")));
}

/* Built in, a superuser's, or an enum: its input and output are built in. */
static bool
is_plain_type(Oid type)
{
	Oid			element = get_element_type(type);
	HeapTuple	tuple;
	bool		plain;

	if (OidIsValid(element))
		return is_plain_type(element);
	if (type < FirstNormalObjectId)
		return true;
	tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(type));
	if (!HeapTupleIsValid(tuple))
		return false;
	plain = is_trusted(((Form_pg_type) GETSTRUCT(tuple))->typowner) ||
		(((Form_pg_type) GETSTRUCT(tuple))->typtype == TYPTYPE_ENUM &&
		 !isAnyTempNamespace(((Form_pg_type) GETSTRUCT(tuple))->typnamespace));
	ReleaseSysCache(tuple);
	return plain;
}

/*
 * Values in a column of a domain type were checked when they were stored.
 * Reading them runs no code of the domain's owner: operators and output function
 * are those of the base type.  The same holds for arrays of a domain.
 */
static bool
is_plain_column(Oid type)
{
	Oid			within;

	while (OidIsValid(within = get_element_type(type)) ||
		   get_typtype(type) == TYPTYPE_DOMAIN)
		type = OidIsValid(within) ? within : getBaseType(type);
	return is_plain_type(type);
}

static bool
is_plain_collation(Oid collation)
{
	HeapTuple	tuple;
	bool		plain;

	if (collation < FirstNormalObjectId)
		return true;
	tuple = SearchSysCache1(COLLOID, ObjectIdGetDatum(collation));
	if (!HeapTupleIsValid(tuple))
		return false;
	plain = is_trusted(((Form_pg_collation) GETSTRUCT(tuple))->collowner);
	ReleaseSysCache(tuple);
	return plain;
}

/* Neither PostgreSQL's nor the extension's. */
static bool
is_of_users(Oid relation)
{
	return relation >= FirstNormalObjectId &&
		get_rel_namespace(relation) != get_namespace_oid(DPSQL_SCHEMA, true);
}

/*
 * A table, of PostgreSQL or of the extension.  A view is expanded later, and what it
 * calls, built in or not, would run as dp_executor.
 */
static bool
is_plain_relation(Oid relation)
{
	char		kind = get_rel_relkind(relation);

	return !is_of_users(relation) || kind == RELKIND_RELATION || kind == RELKIND_PARTITIONED_TABLE ||
		kind == RELKIND_FOREIGN_TABLE;
}

static void
check_analysed(ParseState *pstate, Query *query, JumbleState *jstate)
{
	Inventory	inventory = {0};
	ListCell   *cell;

	if (previous_analyze_hook)
		previous_analyze_hook(pstate, query, jstate);
	if (query->commandType == CMD_UTILITY || !executor_runs())
		return;
	take_inventory(query, &inventory);
	foreach(cell, inventory.functions)
	{
		if (is_foreign(lfirst_oid(cell)))
			refuse_function(lfirst_oid(cell));
	}
	foreach(cell, inventory.relations)
	{
		if (!is_plain_relation(lfirst_oid(cell)))
			ereport(ERROR,
					(errcode(ERRCODE_DPSQL_UNSUPPORTED),
					 errmsg("relation %s is not a table", get_rel_name(lfirst_oid(cell))),
					 errhint("It took the name of a table that was declared; ask again.")));
		/* catalogs of other extensions, such as Citus, are in pg_catalog: superusers make them */
		if (is_serving() && is_of_users(lfirst_oid(cell)) &&
			get_rel_namespace(lfirst_oid(cell)) != PG_CATALOG_NAMESPACE &&
			!may_be_read(lfirst_oid(cell)))
			ereport(ERROR,
					(errcode(ERRCODE_DPSQL_UNSUPPORTED),
					 errmsg("relation %s is not the one that the question was charged for",
							get_rel_name(lfirst_oid(cell))),
					 errhint("It took the name of that one; ask again.")));
	}
	foreach(cell, inventory.types)
	{
		if (!is_plain_type(lfirst_oid(cell)) &&
			(list_member_oid(inventory.made, lfirst_oid(cell)) ||
			 !is_plain_column(lfirst_oid(cell))))
			ereport(ERROR,
					(errcode(ERRCODE_DPSQL_FUNCTION),
					 errmsg("type %s is not allowed in a private query",
							format_type_be(lfirst_oid(cell))),
					 errhint("Use PostgreSQL's own types and enum types.")));
	}
	foreach(cell, inventory.collations)
	{
		if (!is_plain_collation(lfirst_oid(cell)))
			ereport(ERROR,
					(errcode(ERRCODE_DPSQL_FUNCTION),
					 errmsg("a collation that somebody made is not allowed in a private query"),
					 errhint("Use PostgreSQL's own collations, such as COLLATE \"C\".")));
	}
}

static void
refuse_domain(ParseState *pstate, Oid type, int location)
{
	ereport(ERROR,
			(errcode(ERRCODE_DPSQL_FUNCTION),
			 errmsg("the type %s is not allowed here: its literals run the CHECK of a domain",
					format_type_be_qualified(type)),
			 errhint("Cast to the type that the domain is over, as in ARRAY[1]::integer[]."),
			 parser_errposition(pstate, location)));
}

/* Analysis itself calls input functions only, which the executor does not see. */
static void
refuse_call_in_analysis(Oid function)
{
	ereport(ERROR,
			(errcode(ERRCODE_DPSQL_FUNCTION),
			 errmsg("a literal of the question calls function %s", get_func_name(function)),
			 errhint("Cast it to one of PostgreSQL's own types, as in ARRAY[1]::integer[].")));
}

/*
 * Whether the input function of a type runs the CHECK of a domain that is not
 * built in.  The relation of a composite type stays locked, so that nobody adds a
 * column with a domain before the literal is converted.
 */
static bool
checks_domain(Oid type, bool within)
{
	Oid			element = get_element_type(type);
	bool		found = false;

	check_stack_depth();
	if (type < FirstNormalObjectId)
		return false;
	if (OidIsValid(element))
		return checks_domain(element, true);
	switch (get_typtype(type))
	{
		case TYPTYPE_DOMAIN:
			return within || checks_domain(getBaseType(type), false);
		case TYPTYPE_RANGE:
			return checks_domain(get_range_subtype(type), true);
		case TYPTYPE_MULTIRANGE:
			return checks_domain(get_multirange_range(type), true);
		case TYPTYPE_COMPOSITE:
			{
				Relation	relation = try_relation_open(get_typ_typrelid(type), AccessShareLock);
				TupleDesc	columns;

				if (relation == NULL)
					return true;	/* dropped meanwhile */
				columns = relation->rd_att;
				for (int i = 0; i < columns->natts && !found; i++)
					found = !TupleDescAttr(columns, i)->attisdropped &&
						checks_domain(TupleDescAttr(columns, i)->atttypid, true);
				relation_close(relation, NoLock);
				return found;
			}
		default:
			return false;
	}
}

/* Refuse a literal of such a type. */
void
require_no_checks(ParseState *pstate, Oid type, int location)
{
	if (checks_domain(type, false))
		refuse_domain(pstate, type, location);
}

static void
check_executed(ObjectAccessType access, Oid class, Oid object, int column, void *arg)
{
	if (previous_access_hook)
		previous_access_hook(access, class, object, column, arg);
	if (access != OAT_FUNCTION_EXECUTE)
		return;
	if (is_serving() && is_analysing())
		refuse_call_in_analysis(object);
	if (is_foreign(object))
		refuse_function(object);
}

static bool
must_be_called(Oid function)
{
	if (previous_needs_hook && previous_needs_hook(function))
		return true;
	return is_foreign(function);
}

void
executed_init(void)
{
	previous_analyze_hook = post_parse_analyze_hook;
	post_parse_analyze_hook = check_analysed;
	previous_access_hook = object_access_hook;
	object_access_hook = check_executed;
	previous_needs_hook = needs_fmgr_hook;
	needs_fmgr_hook = must_be_called;
}
