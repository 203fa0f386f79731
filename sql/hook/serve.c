/*
 * serve.c
 *		The service session's side: CALL dp.serve and what its Python needs of the server.
 *
 * A service session answers for one other backend, which says which role asks.
 * Only the server's own operating system user can log in as the service's role
 * (peer, pg_hba.conf), and no role can become it, so that nobody else can say
 * in whose name a question is asked.
 *
 * The procedure commits: it reads the catalogue and prices in one transaction,
 * charges in a second one, reads protected rows in a third, stores the answer
 * in a fourth.  Transactions that read see one snapshot (REPEATABLE READ);
 * those that write the ledger wait for locks and are READ COMMITTED.  Only these
 * may write, so that nothing that analysis or reading calls can leave a change.
 *
 * The session is a member of the asker's lock group and so can have no parallel
 * workers of its own.  Workers would also tell: anybody can count them, and the
 * planner chooses them by what it estimates from protected rows.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "optimizer/cost.h"
#include "pgstat.h"
#include "replication/syncrep.h"
#include "replication/walsender.h"
#include "replication/walsender_private.h"
#include "storage/lock.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"

#include "dpsql.h"
#include "service.h"

PG_FUNCTION_INFO_V1(dpsql_serve);
PG_FUNCTION_INFO_V1(dpsql_serve_phase);
PG_FUNCTION_INFO_V1(dpsql_end_service);

#define LEDGER_LOCK_TIMEOUT 5000	/* ms */

static bool serving = false;	/* this session began to be a service session */
static bool last_question = false;
static int	asking_backend = 0;

bool
is_serving(void)
{
	return serving;
}

/* The process ID of the backend that asks, in a service session. */
int
served_backend(void)
{
	return asking_backend;
}

static void
join_asker(int asker)
{
	PGPROC	   *leader = MyProc->lockGroupLeader;

	if (leader != NULL && leader != MyProc)
		return;
	leader = BackendPidGetProc(asker);
	if (leader == NULL || leader->databaseId != MyDatabaseId ||
		!BecomeLockGroupMember(leader, asker))
		ereport(ERROR,
				(errcode(ERRCODE_DPSQL_PERMISSION),
				 errmsg("the session that asks is gone"),
				 errhint("Ask in a new session.")));
}

static void
set_phase(bool writes)
{
	DefaultXactIsoLevel = writes ? XACT_READ_COMMITTED : XACT_REPEATABLE_READ;
	DefaultXactReadOnly = !writes;
	/* Autovacuum needs the ledger's counts; those of protected rows are nobody's to see. */
	pgstat_track_counts = writes;
	LockTimeout = writes ? LEDGER_LOCK_TIMEOUT : 0;
	/* the ledger is looked up by keys, and its plans are kept while its tables grow */
	enable_seqscan = !writes;
}

/* dp.serve_phase(writes boolean): of the transaction that follows */
Datum
dpsql_serve_phase(PG_FUNCTION_ARGS)
{
	if (!serving)
		elog(ERROR, "dp.serve_phase is for service sessions");
	set_phase(PG_GETARG_BOOL(0));
	PG_RETURN_VOID();
}

/*
 * dp.end_service(): the asker closes the connection when it has the answer, and
 * others do not wait any more for an answer that could not be stored.
 */
Datum
dpsql_end_service(PG_FUNCTION_ARGS)
{
	if (!serving)
		elog(ERROR, "dp.end_service is for service sessions");
	last_question = true;
	PG_RETURN_VOID();
}

/* Tell the asker to close the connection; service.c knows the SQLSTATE. */
static void
tell_last(void)
{
	int			messages = client_min_messages;

	client_min_messages = NOTICE;
	ereport(NOTICE,
			(errcode(ERRCODE_DPSQL_LAST),
			 errmsg_internal("this service session answers no further question")));
	client_min_messages = messages;
}

static void
require_service(void)
{
	Oid			role = get_role_oid(DPSQL_SERVICE_ROLE, false);

	if (GetSessionUserId() != role || GetUserId() != role)
		ereport(ERROR,
				(errcode(ERRCODE_DPSQL_PERMISSION),
				 errmsg("dp.serve is for service sessions only"),
				 errhint("Ask the question itself.")));
}

/* The asker's lock_timeout in ms, which is the last of its settings. */
static int
asked_lock_timeout(text *settings)
{
	const char *last = strrchr(text_to_cstring(settings), SEPARATOR);

	return last ? atoi(last + 1) : 0;
}

/* An error undoes it with the transaction. */
static void
set(const char *name, const char *value, GucContext context)
{
	if (strcmp(value, GetConfigOption(name, false, false)) != 0)
		(void) set_config_option(name, value, context, PGC_S_SESSION, GUC_ACTION_SET, true, 0,
								 false);
}

/* Settings that the role itself may not change. */
static void
set_limits(void)
{
	set("temp_file_limit", "-1", PGC_SUSET);
	set("exit_on_error", "off", PGC_SUSET);
	set("log_min_messages", "log", PGC_SUSET);	/* refusals are logged where they are asked */
}

/*
 * A cancel ends the wait for a synchronous standby, with a warning, and is then
 * forgotten.  The charge may be on this server alone, so that the cancel holds
 * for what follows, too.
 */
static void
cancel_if_unconfirmed(XactEvent event, void *arg)
{
	bool		confirmed;

	if (!serving || event != XACT_EVENT_COMMIT || !SyncRepRequested() ||
		SyncRepStandbyNames == NULL || SyncRepStandbyNames[0] == '\0' ||
		!TransactionIdIsValid(GetTopTransactionIdIfAny()))
		return;
	LWLockAcquire(SyncRepLock, LW_SHARED);
	confirmed = WalSndCtl->lsn[SYNC_REP_WAIT_FLUSH] >= XactLastCommitEnd;
	LWLockRelease(SyncRepLock);
	if (!confirmed)
	{
		QueryCancelPending = true;
		InterruptPending = true;
	}
}

/*
 * dp.serve(inout rows text[], handler text, query text, parameters text[], arguments text, role oid,
 *			asker integer, wrote boolean, database oid, settings text, zone text)
 */
Datum
dpsql_serve(PG_FUNCTION_ARGS)
{
	FmgrInfo   *called = fcinfo->flinfo;
	FmgrInfo	python;
	Oid			types[] = {TEXTARRAYOID, TEXTOID, TEXTOID, TEXTARRAYOID, TEXTOID, OIDOID, INT4OID,
	BOOLOID, OIDOID, TEXTOID, TEXTOID};
	Datum		result;

	require_service();
	require_stack();
	for (int i = 5; i < lengthof(types); i++)
	{
		if (PG_ARGISNULL(i))
			elog(ERROR, "dp.serve: argument %d is null", i);
	}
	if (PG_GETARG_OID(8) != MyDatabaseId)
		elog(ERROR, "dp.serve: this is another database");
	if (!serving)
		RegisterXactCallback(cancel_if_unconfirmed, NULL);
	serving = true;
	asking_backend = PG_GETARG_INT32(6);
	join_asker(asking_backend);
	set_limits();
	set("timezone", text_to_cstring(PG_GETARG_TEXT_PP(10)), PGC_USERSET);
	fmgr_info(member_function("python_serve", lengthof(types), types), &python);
	fmgr_info_set_expr(called->fn_expr, &python);
	set_phase(false);
	LockTimeout = asked_lock_timeout(PG_GETARG_TEXT_PP(9));
	PG_TRY();
	{
		begin_serving(PG_GETARG_OID(5));
		fcinfo->flinfo = &python;
		result = FunctionCallInvoke(fcinfo);
	}
	PG_FINALLY();
	{
		fcinfo->flinfo = called;
		end_serving();
		release_kept_locks();
		set_phase(false);
		if (last_question)
			tell_last();
	}
	PG_END_TRY();
	return result;
}
