/*
 * analyze.c
 *		dp.analyze: a statement's text, analysed, with all that it uses.
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"

#include "dpsql.h"

PG_FUNCTION_INFO_V1(dpsql_analyze);

/*
 * Parse analysis runs the input functions of literals, and those of a domain
 * run its CHECK: somebody's code.  So it runs with the rights of whoever wrote
 * the text, never with those of dp.run's owner, and cannot leave a setting
 * behind that dp.run pins.  An error restores both with the (sub)transaction.
 */
static Query *
analyse_as(Oid role, const char *text, const char *const *values, int count)
{
	Oid			user;
	int			context;
	int			nest_level;
	Query	   *query;

	GetUserIdAndSecContext(&user, &context);
	SetUserIdAndSecContext(role, context | SECURITY_LOCAL_USERID_CHANGE |
						   SECURITY_RESTRICTED_OPERATION);
	nest_level = NewGUCNestLevel();
	query = analyse_text(text, values, count, true);
	AtEOXact_GUC(false, nest_level);
	SetUserIdAndSecContext(user, context);
	return query;
}

/*
 * dp.analyze(query text [, parameters text[] [, role oid]]) returns text
 *
 * The role defaults to the one in effect outside all functions: the SET ROLE
 * target or the session user.
 */
Datum
dpsql_analyze(PG_FUNCTION_ARGS)
{
	int			count = 0;
	const char *const *values = NULL;
	Oid			role = GetOuterUserId();
	Query	   *query;
	char	   *sql;

	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	if (PG_NARGS() > 1 && !PG_ARGISNULL(1))
		values = text_array_values(PG_GETARG_ARRAYTYPE_P(1), &count);
	if (PG_NARGS() > 2 && !PG_ARGISNULL(2))
		role = PG_GETARG_OID(2);
	query = analyse_as(role, text_to_cstring(PG_GETARG_TEXT_PP(0)), values, count);
	sql = deparse_query(copyObject(query));
	PG_RETURN_TEXT_P(cstring_to_text(inventory_json(query, sql)));
}
