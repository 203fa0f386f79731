/*
 * analyze.c
 *		dp.analyze: a statement's text, analysed, with all that it uses.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

#include "dpsql.h"

PG_FUNCTION_INFO_V1(dpsql_analyze);
PG_FUNCTION_INFO_V1(dpsql_analyze_view);
PG_FUNCTION_INFO_V1(dpsql_analyze_own);
PG_FUNCTION_INFO_V1(dpsql_analyze_kept);

static bool analysing = false;

/* Whether a text is being analysed.  Analysis calls functions for the CHECK of a domain only. */
bool
is_analysing(void)
{
	return analysing;
}

/*
 * Parse analysis runs the input functions of literals, and those of a domain
 * run its CHECK: somebody's code, whoever wrote the functions in it.  A service
 * session refuses to run it (executed.c).  Elsewhere it runs with the rights of
 * whoever wrote the text, never with those of dp.run's owner, and cannot leave a
 * setting behind that dp.run pins.  An error restores both with the (sub)transaction.
 */
static Query *
analyse_as(Oid role, const char *text, const char *const *values, int count)
{
	Oid			user;
	int			context;
	int			nest_level;
	Caller	   *caller = forget_caller();
	Query	   *volatile query = NULL;

	GetUserIdAndSecContext(&user, &context);
	SetUserIdAndSecContext(role, context | SECURITY_LOCAL_USERID_CHANGE |
						   SECURITY_RESTRICTED_OPERATION);
	nest_level = NewGUCNestLevel();
	analysing = true;
	PG_TRY();
	{
		query = analyse_text(text, values, count, true);
	}
	PG_FINALLY();
	{
		analysing = false;
		remember_caller(caller);
	}
	PG_END_TRY();
	AtEOXact_GUC(false, nest_level);
	SetUserIdAndSecContext(user, context);
	return query;
}

static Datum
analysed(Oid role, const char *text, const char *const *values, int count)
{
	Query	   *query = analyse_as(role, text, values, count);
	char	   *sql = deparse_query(copyObject(query));

	return CStringGetTextDatum(inventory_json(query, sql));
}

/*
 * dp.analyze(query text [, parameters text[]]) returns text
 *
 * With the rights of the role that asks.
 */
Datum
dpsql_analyze(PG_FUNCTION_ARGS)
{
	int			count = 0;
	const char *const *values = NULL;

	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	if (PG_NARGS() > 1 && !PG_ARGISNULL(1))
		values = text_array_values(PG_GETARG_ARRAYTYPE_P(1), &count);
	return analysed(asking_role(), text_to_cstring(PG_GETARG_TEXT_PP(0)), values, count);
}

/*
 * dp.analyze_view(view oid) returns text
 *
 * The role is never an argument: whoever could call this with a text and a
 * role of his choice would be that role.
 */
Datum
dpsql_analyze_view(PG_FUNCTION_ARGS)
{
	Oid			view = PG_GETARG_OID(0);
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(view));
	Form_pg_class form;
	Oid			owner;
	Datum		definition;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "relation %u does not exist", view);
	form = (Form_pg_class) GETSTRUCT(tuple);
	owner = form->relowner;
	if (form->relkind != RELKIND_VIEW)
		elog(ERROR, "relation %u is not a view", view);
	ReleaseSysCache(tuple);
	definition = OidFunctionCall1(F_PG_GET_VIEWDEF_OID, ObjectIdGetDatum(view));
	return analysed(owner, TextDatumGetCString(definition), NULL, 0);
}

/* dp.analyze_own(query text) returns text: of a statement that nobody else wrote */
Datum
dpsql_analyze_own(PG_FUNCTION_ARGS)
{
	return analysed(GetUserId(), text_to_cstring(PG_GETARG_TEXT_PP(0)), NULL, 0);
}

/* dp.analyze_kept(question integer) returns text: text and role are the table's */
Datum
dpsql_analyze_kept(PG_FUNCTION_ARGS)
{
	Oid			type = INT4OID;
	Datum		question = PG_GETARG_DATUM(0);
	MemoryContext context = CurrentMemoryContext;
	HeapTuple	tuple;
	TupleDesc	columns;
	char	   *query;
	Oid			role;
	bool		isnull;

	SPI_connect();
	if (SPI_execute_with_args("select query, kept_by from dp.kept_query where id operator(pg_catalog.=) $1",
							  1, &type, &question, NULL, true, 1) != SPI_OK_SELECT ||
		SPI_processed != 1)
		elog(ERROR, "question %d is not kept", DatumGetInt32(question));
	tuple = SPI_tuptable->vals[0];
	columns = SPI_tuptable->tupdesc;
	query = MemoryContextStrdup(context, SPI_getvalue(tuple, columns, 1));
	role = DatumGetObjectId(SPI_getbinval(tuple, columns, 2, &isnull));
	SPI_finish();
	return analysed(role, query, NULL, 0);
}
