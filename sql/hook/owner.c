/*
 * owner.c
 *		dp.read_as_owner(relation): tables of others, read with their owner's rights.
 *
 * Whoever owns a table may put code where the planner runs it: in the
 * predicate of an index, in statistics, in a policy.  As ANALYZE does, the
 * table is read as its owner in a restricted operation, so that this code gets
 * no rights of whoever wants to know what is in it.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_class.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/value.h"
#include "parser/parse_func.h"
#include "utils/guc.h"
#include "utils/syscache.h"

#include "dpsql.h"

PG_FUNCTION_INFO_V1(dpsql_read_as_owner);

/*
 * What is read waits in the session's Python: a statement of the caller's
 * choice and a role of his choice would make him that role.  An error restores
 * the user and the settings with the (sub)transaction.
 */
Datum
dpsql_read_as_owner(PG_FUNCTION_ARGS)
{
	Oid			relation = PG_GETARG_OID(0);
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relation));
	Oid			reader = LookupFuncName(list_make2(makeString("dp"), makeString("python_read_as_owner")),
										0, NULL, false);
	Oid			owner;
	Oid			user;
	int			context;
	int			nest_level;
	Caller	   *caller;

	if (!below_door())
		ereport(ERROR,
				(errcode(ERRCODE_DPSQL_PERMISSION),
				 errmsg("dp.read_as_owner is for functions of dpsql only"),
				 errhint("Call dp.synthesis_report.")));
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "relation %u does not exist", relation);
	owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
	ReleaseSysCache(tuple);

	caller = forget_caller();
	GetUserIdAndSecContext(&user, &context);
	SetUserIdAndSecContext(owner, context | SECURITY_LOCAL_USERID_CHANGE |
						   SECURITY_RESTRICTED_OPERATION);
	nest_level = NewGUCNestLevel();
	PG_TRY();
	{
		OidFunctionCall0(reader);
	}
	PG_FINALLY();
	{
		remember_caller(caller);
	}
	PG_END_TRY();
	AtEOXact_GUC(false, nest_level);
	SetUserIdAndSecContext(user, context);
	PG_RETURN_VOID();
}
