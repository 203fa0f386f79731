/*
 * inventory_json.c
 *		The inventory of a query as JSON, as dpsql/query/screen.py reads it.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_class.h"
#include "nodes/nodeFuncs.h"
#include "utils/builtins.h"
#include "utils/json.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "dpsql.h"
#include "inventory.h"

static void
append_oids(StringInfo json, const char *key, List *oids)
{
	ListCell   *cell;
	const char *separator = "";

	appendStringInfo(json, ",\"%s\":[", key);
	foreach(cell, oids)
	{
		appendStringInfo(json, "%s%u", separator, lfirst_oid(cell));
		separator = ",";
	}
	appendStringInfoChar(json, ']');
}

static void
append_names(StringInfo json, const char *key, List *names)
{
	ListCell   *cell;
	const char *separator = "";

	appendStringInfo(json, ",\"%s\":[", key);
	foreach(cell, names)
	{
		appendStringInfoString(json, separator);
		escape_json(json, (const char *) lfirst(cell));
		separator = ",";
	}
	appendStringInfoChar(json, ']');
}

static void
append_flag(StringInfo json, const char *key, bool value)
{
	appendStringInfo(json, ",\"%s\":%s", key, value ? "true" : "false");
}

static void
append_relation(StringInfo json, Oid relation)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relation));
	Form_pg_class form;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for relation %u", relation);
	form = (Form_pg_class) GETSTRUCT(tuple);
	appendStringInfo(json, "{\"oid\":%u,\"relkind\":\"%c\",\"schema\":", relation, form->relkind);
	escape_json(json, get_namespace_name(form->relnamespace));
	appendStringInfoString(json, ",\"name\":");
	escape_json(json, NameStr(form->relname));
	append_flag(json, "rowsecurity", form->relrowsecurity);
	append_flag(json, "rules", form->relhasrules);
	append_flag(json, "temporary", form->relpersistence == RELPERSISTENCE_TEMP);
	appendStringInfoChar(json, '}');
	ReleaseSysCache(tuple);
}

static void
append_operator(StringInfo json, Oid operator, Oid collation)
{
	Oid			left;
	Oid			right;

	op_input_types(operator, &left, &right);
	appendStringInfo(json,
					 "{\"oid\":%u,\"function\":%u,\"left\":%u,\"right\":%u,\"collation\":%u}",
					 operator, get_opcode(operator), left, right, collation);
}

static void
append_column(StringInfo json, TargetEntry *entry)
{
	Node	   *expr = (Node *) entry->expr;

	appendStringInfoString(json, "{\"name\":");
	escape_json(json, entry->resname ? entry->resname : "");
	appendStringInfo(json, ",\"type\":%u,\"typmod\":%d,\"type_name\":",
					 exprType(expr), exprTypmod(expr));
	escape_json(json, format_type_with_typemod(exprType(expr), exprTypmod(expr)));
	appendStringInfo(json, ",\"collation\":%u}", exprCollation(expr));
}

/* The inventory of an analysed query, beside its text. */
char *
inventory_json(Query *query, const char *sql)
{
	Inventory	inventory = {0};
	StringInfoData json;
	ListCell   *cell;
	ListCell   *other;
	const char *separator = "";

	take_inventory(query, &inventory);

	initStringInfo(&json);
	appendStringInfoString(&json, "{\"command\":\"SELECT\",\"sql\":");
	escape_json(&json, sql);
	appendStringInfoString(&json, ",\"relations\":[");
	foreach(cell, inventory.relations)
	{
		appendStringInfoString(&json, separator);
		append_relation(&json, lfirst_oid(cell));
		separator = ",";
	}
	appendStringInfoString(&json, "],\"operators\":[");
	separator = "";
	forboth(cell, inventory.operators, other, inventory.operator_collations)
	{
		appendStringInfoString(&json, separator);
		append_operator(&json, lfirst_oid(cell), lfirst_oid(other));
		separator = ",";
	}
	appendStringInfoString(&json, "],\"columns\":[");
	separator = "";
	foreach(cell, query->targetList)
	{
		if (lfirst_node(TargetEntry, cell)->resjunk)
			continue;
		appendStringInfoString(&json, separator);
		append_column(&json, lfirst_node(TargetEntry, cell));
		separator = ",";
	}
	appendStringInfoChar(&json, ']');
	append_oids(&json, "functions", inventory.functions);
	append_oids(&json, "types", inventory.types);
	append_oids(&json, "collations", inventory.collations);
	append_oids(&json, "domains", inventory.domains);
	append_names(&json, "constructs", inventory.constructs);
	append_names(&json, "sqlvalue", inventory.sqlvalues);
	append_flag(&json, "viaio", inventory.viaio);
	append_flag(&json, "grouping_sets", inventory.grouping_sets);
	append_flag(&json, "for_update", inventory.for_update);
	append_flag(&json, "target_srfs", inventory.target_srfs);
	append_flag(&json, "set_operations", inventory.set_operations);
	appendStringInfoChar(&json, '}');
	return json.data;
}
