/*
 * service.c
 *		The asking backend's side of the service session.
 *
 * A question is read, charged and noised in another backend of the same
 * database, which one asking backend keeps for itself.  Text and parameters,
 * the asking role, the settings of dpsql and the time zone go there; an array
 * of texts, notices and at most one refusal come back.  Nothing else of this
 * session reaches the service: no stack, memory, snapshot, transaction,
 * temporary object or other setting.
 *
 * The asking backend waits on its latch, so that a cancel, a timeout or a
 * termination is noticed at once and is passed on.
 *
 * Both backends are one lock group, as a leader and its parallel workers are:
 * a lock that the asking transaction holds does not block the service, and the
 * deadlock detector sees both as one.
 */
#include "postgres.h"

#include <libpq-fe.h>

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "commands/dbcommands.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/postmaster.h"
#include "storage/fd.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/varlena.h"

#include "dpsql.h"
#include "service.h"

#define ERRCODE_DPSQL_LEDGER MAKE_SQLSTATE('P', 'D', '0', '5', '0')
#define IDLE_SESSION_TIMEOUT "57P05"
#define CONNECT_TIMEOUT 5000	/* ms */
#define TICK 1000				/* ms, of a wait that its latch ends */
#define ASK "call dp.serve(null, $1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
#define ARGUMENTS 10

/*
 * The settings of a service session.  They come with the connection, so that
 * ALTER ROLE and ALTER DATABASE do not change them.
 */
static const char *const session_settings[] = {
	/* what every statement over protected rows is planned and run with */
	"search_path=pg_catalog,pg_temp", "standard_conforming_strings=on", "datestyle=ISO,YMD",
	"intervalstyle=postgres", "extra_float_digits=1", "bytea_output=hex", "array_nulls=on",
	"transform_null_equals=off", "quote_all_identifiers=off", "row_security=off",
	"client_min_messages=error", "debug_print_parse=off", "debug_print_rewritten=off",
	"debug_print_plan=off", "gin_fuzzy_search_limit=0", "plan_cache_mode=force_generic_plan",
	"constraint_exclusion=off", "temp_tablespaces=", "default_tablespace=",
	"default_table_access_method=heap", "jit=off",
	"max_parallel_workers_per_gather=0", "geqo_pool_size=0", "geqo_generations=0",
	/* where a large table was read last is kept for all sessions, and shows in theirs */
	"synchronize_seqscans=off",
	/* what the ledger is written with */
	"synchronous_commit=on", "lock_timeout=5s", "statement_timeout=0",
	"idle_in_transaction_session_timeout=15s", "idle_session_timeout=60s",
	"default_transaction_isolation=repeatable\\ read", "default_transaction_read_only=on",
	"default_transaction_deferrable=off",
	/* an asker that dies ends the work that it waited for */
	"client_connection_check_interval=100ms",
};

/*
 * Settings that the asker chooses; dpsql/server/settings.py names the same, in this order.
 * The last one says how long the question may wait for locks before its charge.
 */
static const char *const asked_settings[] = {
	"dp.epsilon", "dp.delta", "dp.method", "dp.mechanism", "dp.max_epsilon_per_query", "dp.fresh",
	"dp.confidence", "dp.sampling_rate", "dp.sampling_filter", "dp.statistics",
	"dp.max_contribution", "dp.max_groups_contributed", "dp.max_rows_contributed",
	"dp.min_frequency", "lock_timeout",
};

static PGconn *service = NULL;
static PGresult *collected = NULL;	/* so far, while more is waited for */
static PGconn *ending = NULL;	/* was cancelled, and has not ended its question yet */

static void
disconnect(PGconn **connection)
{
	if (*connection)
	{
		PQfinish(*connection);
		*connection = NULL;
		ReleaseExternalFD();
	}
}

static void
disconnect_service(void)
{
	disconnect(&service);
}

/* Close all connections at the end of this backend, so that its service sessions end, too. */
void
end_services(void)
{
	disconnect(&service);
	disconnect(&ending);
}

static void
refuse(const char *detail, const char *hint)
{
	char	   *copy = pstrdup(detail);

	disconnect_service();
	ereport(ERROR,
			(errcode(ERRCODE_DPSQL_LEDGER),
			 errmsg("the service session of this session is not available"),
			 errdetail_internal("%s", copy),
			 errhint("%s", hint)));
}

/*
 * Refuse while the service session of a cancelled question still works, so that
 * an asker keeps at most one such session busy.
 */
static void
require_ended(void)
{
	if (ending == NULL)
		return;
	if (PQconsumeInput(ending) && PQstatus(ending) == CONNECTION_OK && PQisBusy(ending))
		refuse("A question that was cancelled has not ended yet.", "Ask again later.");
	disconnect(&ending);
	forget_said();				/* what it said was for that question */
}

static void
unavailable(const char *detail)
{
	refuse(detail, "Ask again. SELECT * FROM dp.ledger shows what was charged.");
}

/* Says what the server said, without the socket's path. */
static void
cannot_connect(void)
{
	const char *said = service ? strstr(PQerrorMessage(service), "FATAL:") : NULL;

	if (said)
		said += strlen("FATAL:");
	while (said && *said == ' ')
		said++;
	refuse(said ? psprintf("Connecting failed: %s.", pchomp(said)) : "Connecting failed.",
		   "Ask again later; if it stays so, the administrator must look at max_connections and at "
		   "the authentication of the role " DPSQL_SERVICE_ROLE ".");
}

/* Wait until the socket is ready or the latch is set; interrupts are served. */
static void
wait_for_service(int events)
{
	int			found = WaitLatchOrSocket(MyLatch,
										  events | WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
										  PQsocket(service), TICK, PG_WAIT_EXTENSION);

	if (found & WL_LATCH_SET)
	{
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}

/* The first of the server's socket directories. */
static char *
socket_directory(void)
{
	char	   *all = pstrdup(Unix_socket_directories ? Unix_socket_directories : "");
	List	   *directories = NIL;

	if (!SplitDirectoriesString(all, ',', &directories) || directories == NIL)
		unavailable("The server has no unix socket.");
	return (char *) linitial(directories);
}

static char *
options_of_session(void)
{
	StringInfoData options;

	initStringInfo(&options);
	for (int i = 0; i < lengthof(session_settings); i++)
		appendStringInfo(&options, "-c %s ", session_settings[i]);
	return options.data;
}

/* Wait for all results of what was sent; the last one, or the first that failed. */
static PGresult *
collect(void)
{
	PGresult   *last = NULL;

	PQclear(collected);
	collected = NULL;
	while (PQflush(service) == 1)
	{
		wait_for_service(WL_SOCKET_READABLE | WL_SOCKET_WRITEABLE);
		if (!PQconsumeInput(service))
			break;
	}
	for (;;)
	{
		PGresult   *one;

		while (PQisBusy(service))
		{
			tell_said();
			wait_for_service(WL_SOCKET_READABLE);
			if (!PQconsumeInput(service))
				break;
		}
		tell_said();
		one = PQgetResult(service);
		if (one == NULL)
		{
			tell_said();
			collected = NULL;
			return last;
		}
		if (last && PQresultStatus(last) == PGRES_FATAL_ERROR)
			PQclear(one);
		else
		{
			PQclear(last);
			collected = last = one;
		}
		if (PQstatus(service) == CONNECTION_BAD)
		{
			collected = NULL;
			return last;
		}
	}
}

static void
start_connecting(void)
{
	const char *keywords[] = {"host", "port", "dbname", "user", "application_name", "sslmode",
	"gssencmode", "client_encoding", "options", NULL};
	const char *values[] = {socket_directory(), psprintf("%d", PostPortNumber),
		get_database_name(MyDatabaseId), DPSQL_SERVICE_ROLE, "dpsql_service", "disable",
	"disable", GetDatabaseEncodingName(), options_of_session(), NULL};

	if (!AcquireExternalFD())
		ereport(ERROR,
				(errcode(ERRCODE_DPSQL_LEDGER),
				 errmsg("the service session of this session is not available"),
				 errdetail("This backend has too many open files."),
				 errhint("Close cursors over foreign tables, or ask in a new session.")));
	service = PQconnectStartParams(keywords, values, 0);
	forget_last();
	if (service == NULL)
		ReleaseExternalFD();
}

static void
connect_service(void)
{
	PostgresPollingStatusType state = PGRES_POLLING_WRITING;
	TimestampTz start = GetCurrentTimestamp();
	PGresult   *result;

	lead_group();
	start_connecting();
	if (service == NULL || PQstatus(service) == CONNECTION_BAD)
		cannot_connect();
	while (state != PGRES_POLLING_OK)
	{
		wait_for_service(state == PGRES_POLLING_READING ? WL_SOCKET_READABLE : WL_SOCKET_WRITEABLE);
		state = PQconnectPoll(service);
		if (state == PGRES_POLLING_FAILED)
			cannot_connect();
		if (TimestampDifferenceExceeds(start, GetCurrentTimestamp(), CONNECT_TIMEOUT))
			unavailable("Connecting took too long.");
	}
	PQsetNoticeReceiver(service, keep_message, NULL);
	if (PQsetnonblocking(service, 1) != 0 || !PQsendPrepare(service, "ask", ASK, 0, NULL))
		unavailable(pchomp(PQerrorMessage(service)));
	result = collect();
	if (PQresultStatus(result) != PGRES_COMMAND_OK)
	{
		PQclear(result);
		unavailable(pchomp(PQerrorMessage(service)));
	}
	PQclear(result);
}

/* An idle service has nothing to say but goodbye. */
static bool
is_usable(void)
{
	int			found;

	if (service == NULL || PQstatus(service) != CONNECTION_OK)
		return false;
	found = WaitLatchOrSocket(NULL, WL_SOCKET_READABLE | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
							  PQsocket(service), 0, PG_WAIT_EXTENSION);
	return !(found & WL_SOCKET_READABLE);
}

/* It ended just when it was asked, before it read the question. */
static bool
ended_idle(const PGresult *result)
{
	const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
	const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);

	return PQstatus(service) != CONNECTION_OK && severity && state &&
		strcmp(severity, "FATAL") == 0 && strcmp(state, IDLE_SESSION_TIMEOUT) == 0;
}

static char *
settings_text(void)
{
	StringInfoData text;

	initStringInfo(&text);
	for (int i = 0; i < lengthof(asked_settings); i++)
	{
		const char *value = GetConfigOption(asked_settings[i], false, false);

		if (i > 0)
			appendStringInfoChar(&text, SEPARATOR);
		appendStringInfoString(&text, value ? value : "");
	}
	return text.data;
}

static void
send_question(const Question *question)
{
	const char *values[ARGUMENTS] = {
		question->handler,
		question->query,
		question->parameters,
		question->arguments,
		psprintf("%u", question->role),
		psprintf("%d", MyProcPid),
		TransactionIdIsValid(GetTopTransactionIdIfAny()) ? "t" : "f",
		psprintf("%u", MyDatabaseId),
		settings_text(),
		GetConfigOption("timezone", false, false),
	};

	if (!PQsendQueryPrepared(service, "ask", ARGUMENTS, values, NULL, NULL, 0))
		unavailable(pchomp(PQerrorMessage(service)));
}

static char *
copy_field(const PGresult *result, int field)
{
	const char *text = PQresultErrorField(result, field);

	return text ? pstrdup(text) : NULL;
}

static ErrorData *
error_of(const PGresult *result)
{
	ErrorData  *error = palloc0(sizeof(ErrorData));
	const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	const char *position = PQresultErrorField(result, PG_DIAG_INTERNAL_POSITION);

	error->elevel = ERROR;
	error->sqlerrcode = MAKE_SQLSTATE(state[0], state[1], state[2], state[3], state[4]);
	error->message = copy_field(result, PG_DIAG_MESSAGE_PRIMARY);
	error->detail = copy_field(result, PG_DIAG_MESSAGE_DETAIL);
	error->hint = copy_field(result, PG_DIAG_MESSAGE_HINT);
	error->internalquery = copy_field(result, PG_DIAG_INTERNAL_QUERY);
	error->internalpos = position ? atoi(position) : 0;
	return error;
}

/*
 * The locks of this backend do not exclude those of the service, so it goes on
 * when the service has ended, or a second later.
 */
static void
wait_for_end(void)
{
	TimestampTz start = GetCurrentTimestamp();

	while (PQstatus(service) == CONNECTION_OK && PQisBusy(service) &&
		   !TimestampDifferenceExceeds(start, GetCurrentTimestamp(), TICK))
	{
		(void) WaitLatchOrSocket(NULL, WL_SOCKET_READABLE | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
								 PQsocket(service), 100, PG_WAIT_EXTENSION);
		if (!PQconsumeInput(service))
			break;
	}
}

/* Stop what the service does for a question that nobody waits for any more. */
static void
abandon(void)
{
	forget_said();
	if (service && PQtransactionStatus(service) == PQTRANS_ACTIVE)
	{
		PGcancel   *cancel = PQgetCancel(service);
		char		message[256];

		if (cancel)
		{
			(void) PQcancel(cancel, message, sizeof(message));
			PQfreeCancel(cancel);
			wait_for_end();
		}
		if (PQstatus(service) == CONNECTION_OK && PQisBusy(service))
		{
			ending = service;
			service = NULL;
		}
	}
	disconnect_service();
	forget_said();
}

Datum
ask_service(const Question *question, ErrorData **refused)
{
	volatile Datum rows = (Datum) 0;
	PGresult   *volatile result = NULL;

	*refused = NULL;
	require_ended();
	PG_TRY();
	{
		do
		{
			PQclear(result);
			result = NULL;
			if (!is_usable())
			{
				disconnect_service();
				connect_service();
			}
			send_question(question);
			result = collect();
		} while (ended_idle(result));
		if (PQresultStatus(result) == PGRES_FATAL_ERROR &&
			PQresultErrorField(result, PG_DIAG_SQLSTATE) != NULL &&
			PQstatus(service) == CONNECTION_OK)
			*refused = error_of(result);
		else if (PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) == 1 &&
				 PQnfields(result) == 1 && !PQgetisnull(result, 0, 0))
			rows = OidInputFunctionCall(F_ARRAY_IN, PQgetvalue(result, 0, 0), TEXTOID, -1);
		else
			unavailable("It ended while the question was computed; the charge may have been recorded.");
		PQclear(result);
		result = NULL;
		if (said_last())
			disconnect_service();
	}
	PG_CATCH();
	{
		PQclear(result);
		abandon();
		PG_RE_THROW();
	}
	PG_END_TRY();
	return rows;
}
