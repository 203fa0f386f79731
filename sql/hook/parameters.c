/*
 * parameters.c
 *		dp.parameters(...): the arguments as literals that mean the same
 *		wherever they are read.
 */
#include "postgres.h"

#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "dpsql.h"

PG_FUNCTION_INFO_V1(dpsql_parameters);

/*
 * '...'::schema.type, or NULL::schema.type.  A value of a domain is written
 * in its base type, whose input cannot be refused by somebody's constraint.
 * "bpchar" and not "character", which would mean character(1).
 */
static char *
literal(Oid type, Datum value, bool isnull)
{
	Oid			base = getBaseType(type);
	char	   *name = format_type_extended(base, -1,
											FORMAT_TYPE_TYPEMOD_GIVEN | FORMAT_TYPE_FORCE_QUALIFY);
	Oid			output;
	bool		varlena;

	if (isnull)
		return psprintf("NULL::%s", name);
	getTypeOutputInfo(base, &output, &varlena);
	return psprintf("%s::%s", quote_literal_cstr(OidOutputFunctionCall(output, value)), name);
}

static Datum
literals(FunctionCallInfo fcinfo)
{
	int			count = PG_NARGS();
	Datum	   *values = palloc0(sizeof(Datum) * Max(count, 1));
	bool	   *nulls = palloc0(sizeof(bool) * Max(count, 1));
	int			dims[1] = {count};
	int			lower[1] = {1};

	for (int i = 0; i < count; i++)
	{
		Oid			type = get_fn_expr_argtype(fcinfo->flinfo, i);

		if (!OidIsValid(type))
			elog(ERROR, "could not determine the type of argument %d", i + 1);
		if (type == UNKNOWNOID)
			values[i] = CStringGetTextDatum(literal(TEXTOID,
													PG_ARGISNULL(i) ? (Datum) 0
													: CStringGetTextDatum(DatumGetCString(PG_GETARG_DATUM(i))),
													PG_ARGISNULL(i)));
		else
			values[i] = CStringGetTextDatum(literal(type, PG_GETARG_DATUM(i), PG_ARGISNULL(i)));
	}
	return PointerGetDatum(construct_md_array(values, nulls, 1, dims, lower,
											  TEXTOID, -1, false, TYPALIGN_INT));
}

/* dp.parameters(VARIADIC "any") returns text[] */
Datum
dpsql_parameters(PG_FUNCTION_ARGS)
{
	int			nestlevel;
	volatile Datum result = (Datum) 0;

	if (get_fn_expr_variadic(fcinfo->flinfo))
		ereport(ERROR,
				(errcode(ERRCODE_DPSQL_PARAMETER),
				 errmsg("dp.parameters does not take a VARIADIC array"),
				 errhint("Pass the parameters one by one.")));
	nestlevel = pin_reading_settings();
	PG_TRY();
	{
		result = literals(fcinfo);
	}
	PG_FINALLY();
	{
		unpin_reading_settings(nestlevel);
	}
	PG_END_TRY();
	PG_RETURN_DATUM(result);
}
