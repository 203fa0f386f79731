/*
 * refuse.c
 *		The private aggregates as the executor would see them, and the log.
 */
#include "postgres.h"

#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"

#include "dpsql.h"

#define MAX_LOG_BYTES 2000

PG_FUNCTION_INFO_V1(dpsql_not_intercepted);
PG_FUNCTION_INFO_V1(dpsql_server_log);

/*
 * Transition and final function of every private aggregate.  A query that
 * holds one is replaced before it is planned; one that reaches the executor
 * must not return a value, not even for no rows.
 */
Datum
dpsql_not_intercepted(PG_FUNCTION_ARGS)
{
	ereport(ERROR,
			(errcode(ERRCODE_DPSQL_NOT_INTERCEPTED),
			 errmsg("a private aggregate was not intercepted"),
			 errdetail("The query reached the executor without passing dpsql."),
			 errhint("Add dpsql to shared_preload_libraries and restart the server, or use"
					 " SELECT * FROM dp.query($$ ... $$).")));
	PG_RETURN_NULL();			/* not reached */
}

/*
 * dp.server_log(message text): a line in the server's log that no setting can
 * bring to a client, without the statement that was running.
 */
Datum
dpsql_server_log(PG_FUNCTION_ARGS)
{
	text	   *message = PG_GETARG_TEXT_PP(0);
	const char *bytes = VARDATA_ANY(message);
	int			length = pg_mbcliplen(bytes, VARSIZE_ANY_EXHDR(message), MAX_LOG_BYTES);

	ereport(LOG_SERVER_ONLY,
			(errmsg_internal("dpsql: %.*s", length, bytes),
			 errhidestmt(true),
			 errhidecontext(true)));
	PG_RETURN_VOID();
}
