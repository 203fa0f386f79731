/*
 * door.c
 *		dp.run and its like: the door between SQL and the PL/Python functions.
 *
 * PL/Python appends its frames to the context of every error and knows no
 * position in the statement of the client.  So dp.<name> is a C function that
 * calls dp.python_<name>, which nobody else may call, and raises its refusals
 * as PostgreSQL raises its own: message, detail, hint and a cursor.
 *
 * What may be told is decided by dpsql/server/entry.py.  This file takes away
 * (frames, the name of the exception) and adds what the caller wrote himself.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_proc.h"
#include "common/shortest_dec.h"
#include "executor/instrument.h"
#include "fmgr.h"
#include "catalog/pg_type.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "nodes/primnodes.h"
#include "parser/parser.h"
#include "tcop/tcopprot.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

#include "dpsql.h"
#include "service.h"

#define PREFIX "dpsql: "

PG_FUNCTION_INFO_V1(dpsql_door);
PG_FUNCTION_INFO_V1(dpsql_ask_json);
PG_FUNCTION_INFO_V1(dpsql_ask_about);
PG_FUNCTION_INFO_V1(dpsql_ask_service);
PG_FUNCTION_INFO_V1(dpsql_door_rows);
PG_FUNCTION_INFO_V1(dpsql_door_table);
PG_FUNCTION_INFO_V1(dpsql_door_value);
PG_FUNCTION_INFO_V1(dpsql_door_text);
PG_FUNCTION_INFO_V1(dpsql_door_asking);
PG_FUNCTION_INFO_V1(dpsql_warn);
PG_FUNCTION_INFO_V1(dpsql_note);

/* What the caller of a running function had in effect. */
struct Caller
{
	struct Caller *outer;
	ErrorContextCallback *context;
	int			messages;		/* client_min_messages */
	bool		conforming;		/* standard_conforming_strings */
	Oid			role;			/* who asks and pays */
};

static Caller *current_caller = NULL;

/* The PL/Python functions that are running, also where the caller is forgotten. */
typedef struct Running
{
	struct Running *outer;
	Oid			function;
} Running;

static Running *running = NULL;

/*
 * Maintenance (autovacuum, ANALYZE, REFRESH, index builds) runs a table
 * owner's code with the owner as current user only: outside all functions
 * there is still the superuser who, or on whose behalf, it is done.
 */
static bool
in_maintenance(void)
{
	Oid			user;
	int			context;

	GetUserIdAndSecContext(&user, &context);
	return (context & SECURITY_RESTRICTED_OPERATION) != 0;
}

/* Who asks, at a door: the SET ROLE target or session user, but see above. */
static Oid
role_at_door(void)
{
	if (in_maintenance())
		return GetUserId();
	require_no_foreign_key_action();
	return GetOuterUserId();
}

/*
 * Who asks, anywhere.  Below a door the door knows.  Elsewhere definers may
 * have hidden the current user, so that in maintenance nobody can tell.
 */
Oid
asking_role(void)
{
	if (current_caller)
		return current_caller->role;
	if (in_maintenance())
		ereport(ERROR,
				(errcode(ERRCODE_DPSQL_PERMISSION),
				 errmsg("functions of dpsql cannot be used inside maintenance of a relation"),
				 errdetail("ANALYZE, VACUUM, REFRESH and index builds run expressions as the relation's owner."),
				 errhint("Call them in a statement of their own.")));
	require_no_foreign_key_action();
	return GetOuterUserId();
}

/*
 * In a service session the asking backend says who asks.  Messages leave as
 * they are; client_min_messages of the asker decides there.
 */
static Caller served;

void
begin_serving(Oid role)
{
	served.outer = NULL;
	served.context = error_context_stack;
	served.messages = NOTICE;
	served.conforming = true;
	served.role = role;
	current_caller = &served;
}

void
end_serving(void)
{
	current_caller = NULL;
}

bool
below_door(void)
{
	return current_caller != NULL;
}

/* Code that others wrote and that runs below a door is on nobody's behalf. */
Caller *
forget_caller(void)
{
	Caller	   *caller = current_caller;

	current_caller = NULL;
	return caller;
}

void
remember_caller(Caller *caller)
{
	current_caller = caller;
}

/* dp.<prefix>_<name> with the arguments of the function that was called. */
static FmgrInfo *
function_behind(FunctionCallInfo fcinfo, const char *prefix)
{
	FmgrInfo   *behind = (FmgrInfo *) fcinfo->flinfo->fn_extra;
	HeapTuple	tuple;
	Form_pg_proc form;

	if (behind)
		return behind;
	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(fcinfo->flinfo->fn_oid));
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for function %u", fcinfo->flinfo->fn_oid);
	form = (Form_pg_proc) GETSTRUCT(tuple);
	behind = MemoryContextAllocZero(fcinfo->flinfo->fn_mcxt, sizeof(FmgrInfo));
	fmgr_info_cxt(member_function(psprintf("%s_%s", prefix, NameStr(form->proname)),
								  form->pronargs, form->proargtypes.values),
				  behind, fcinfo->flinfo->fn_mcxt);
	fmgr_info_set_expr(fcinfo->flinfo->fn_expr, behind);
	ReleaseSysCache(tuple);
	fcinfo->flinfo->fn_extra = behind;
	return behind;
}

/*
 * Analysis runs code of whoever asks (the CHECK of a domain), which could call
 * the same function again: PL/Python would free it under the outer call if it
 * was altered meanwhile.  A service session has one question at a time, and it
 * is in a lock group, so that it can lead none.
 */
static void
require_not_running(Oid function)
{
	Running		served = {.outer = running, .function = function};

	for (Running *one = is_serving() ? &served : running; one; one = one->outer)
	{
		if (one->function == function)
			ereport(ERROR,
					(errcode(ERRCODE_DPSQL_UNSUPPORTED),
					 errmsg("a question cannot be asked while another one is analysed"),
					 errhint("Take the question out of the function that the statement calls.")));
	}
}

static bool
is_ours(int sqlstate)
{
	return ERRCODE_TO_CATEGORY(sqlstate) == MAKE_SQLSTATE('P', 'D', '0', '0', '0');
}

/* Ours, or one of those that entry.py lets pass. */
static bool
is_refusal(int sqlstate)
{
	return is_ours(sqlstate) ||
		sqlstate == ERRCODE_QUERY_CANCELED ||
		sqlstate == ERRCODE_T_R_SERIALIZATION_FAILURE ||
		sqlstate == ERRCODE_T_R_DEADLOCK_DETECTED ||
		sqlstate == ERRCODE_LOCK_NOT_AVAILABLE ||
		sqlstate == ERRCODE_ADMIN_SHUTDOWN ||
		sqlstate == ERRCODE_CRASH_SHUTDOWN;
}

/*
 * Raise it again as if it came from here.  The context that is left is that of
 * our caller, a PL/pgSQL function for instance.  A place that is not found in
 * the text that the caller wrote is told in words, never as a guessed number;
 * where ordinary aggregates were asked for over exposed views, those words would
 * not be the caller's.
 */
static void
raise_refusal(ErrorData *error, const char *source, int location, bool statement,
			  bool conforming, bool ordinary)
{
	const char *message = error->message ? error->message : "missing error text";
	const char *detail = error->detail;
	const char *hint = error->hint;
	int			position = 0;

	if (strncmp(message, PREFIX, strlen(PREFIX)) == 0)
		message += strlen(PREFIX);
	if (ordinary)
	{
		message = in_ordinary_words(message);
		detail = detail ? in_ordinary_words(detail) : NULL;
		hint = hint ? in_ordinary_words(hint) : NULL;
	}
	if (is_ours(error->sqlerrcode) && error->internalquery && error->internalpos > 0)
	{
		position = find_in_source(error->internalquery, error->internalpos,
								  source, location, conforming, ordinary);
		if (position == 0 && !ordinary)
		{
			char	   *words = words_there(error->internalquery, error->internalpos);

			detail = detail ? psprintf("%s %s", detail, words) : words;
		}
	}
	ereport(ERROR,
			(errcode(error->sqlerrcode),
			 errmsg_internal("%s", message),
			 detail ? errdetail_internal("%s", detail) : 0,
			 hint ? errhint("%s", hint) : 0,
			 position > 0 && statement ? errposition(position) : 0,
			 position > 0 && !statement ? internalerrquery(source) : 0,
			 position > 0 && !statement ? internalerrposition(position) : 0));
}

/*
 * What reading protected rows must not leave behind for the caller: counts of
 * rows and pages in the statistics of his own transaction, and an error's text
 * that exit_on_error would send before anybody could take it away.  The
 * caller's buffer usage, which EXPLAIN prints, is put back as well.
 */
static int
hide_traces(void)
{
	int			nest_level = NewGUCNestLevel();

	changes_pause();
	(void) set_config_option("track_counts", "off", PGC_SUSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	(void) set_config_option("exit_on_error", "off", PGC_SUSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	return nest_level;
}

/*
 * In a SERIALIZABLE transaction the server notes for each row that is read
 * whether another one wrote it, and fails one of them at its COMMIT, which a
 * second session of the asker can bring about after the question was answered.
 */
static void
require_no_conflicts(void)
{
	if (IsolationIsSerializable())
		ereport(ERROR,
				(errcode(ERRCODE_DPSQL_UNSUPPORTED),
				 errmsg("a question cannot be asked in a SERIALIZABLE transaction"),
				 errdetail("Which transactions fail there depends on the rows that are read."),
				 errhint("Use BEGIN ISOLATION LEVEL REPEATABLE READ, and outside of transactions SET default_transaction_isolation = 'repeatable read'.")));
}

/*
 * If "reads", the function only reads, and the locks that it takes are released
 * when it returns (locks.c).
 */
static Datum
answer(FunctionCallInfo fcinfo, const char *source, int location, bool statement, bool reads)
{
	BufferUsage used = pgBufferUsage;
	WalUsage	written = pgWalUsage;
	FmgrInfo   *called = fcinfo->flinfo;
	FmgrInfo   *volatile python = function_behind(fcinfo, "python");
	MemoryContext context = CurrentMemoryContext;
	Caller		caller = {
		.outer = current_caller,
		.context = error_context_stack,
		.messages = client_min_messages,
		.conforming = standard_conforming_strings,
		.role = role_at_door(),
	};
	Running		this_one = {.outer = running, .function = python->fn_oid};
	volatile Datum result = (Datum) 0;
	bool		shown = progress_is_shown();
	int			nest_level;

	require_stack();
	require_no_conflicts();
	require_not_running(python->fn_oid);
	nest_level = hide_traces();
	current_caller = &caller;
	running = &this_one;
	PG_TRY();
	{
		fcinfo->flinfo = python;
		result = reads ? call_apart(invoke_function, fcinfo) : FunctionCallInvoke(fcinfo);
		fcinfo->flinfo = called;
		current_caller = caller.outer;
		running = this_one.outer;
		AtEOXact_GUC(true, nest_level);
		pgBufferUsage = used;
		pgWalUsage = written;
	}
	PG_CATCH();
	{
		ErrorData  *error;

		fcinfo->flinfo = called;
		current_caller = caller.outer;
		running = this_one.outer;
		AtEOXact_GUC(false, nest_level);
		pgBufferUsage = used;
		pgWalUsage = written;
		if (!shown)
			progress_clear();
		if (!is_refusal(geterrcode()))
			PG_RE_THROW();
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		raise_refusal(error, source, location, statement, caller.conforming,
					  statement && asked_over_views(called->fn_expr));
	}
	PG_END_TRY();
	return result;
}

/*
 * All rows come as one value, a two-dimensional array of texts.  One row a
 * call would be no way: PL/Python frees its function between two calls if the
 * row in pg_proc was changed meanwhile (ALTER FUNCTION, GRANT, ALTER EXTENSION).
 */
static Datum
answer_rows(FunctionCallInfo fcinfo, const char *source, int location, bool statement)
{
	ReturnSetInfo *caller = (ReturnSetInfo *) fcinfo->resultinfo;
	Datum		rows;

	fcinfo->resultinfo = NULL;
	rows = answer(fcinfo, source, location, statement, true);
	fcinfo->resultinfo = (fmNodePtr) caller;
	if (fcinfo->isnull)
		elog(ERROR, "the answer has no rows");
	return_rows(caller, DatumGetArrayTypeP(rows));
	fcinfo->isnull = true;
	return (Datum) 0;
}

/* An error of the server's own in the service session, whose text nobody may see. */
static void
raise_failure(ErrorData *error)
{
	ereport(ERROR,
			(errcode(ERRCODE_INTERNAL_ERROR),
			 errmsg("the service session failed with SQLSTATE %s", unpack_sql_state(error->sqlerrcode)),
			 errhint("Ask again. SELECT * FROM dp.ledger shows what was charged.")));
}

/* The answer of the service session, as rows; "statement" as in raise_refusal. */
static Datum
ask(FunctionCallInfo fcinfo, Question *question, const char *source, int location, bool statement)
{
	ErrorData  *refused;
	Datum		rows;

	require_same_version();
	question->query = PG_ARGISNULL(0) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(0));
	question->role = role_at_door();
	require_not_running(InvalidOid);
	rows = ask_service(question, &refused);
	if (refused && is_refusal(refused->sqlerrcode))
		raise_refusal(refused, source, location, statement, standard_conforming_strings,
					  statement && asked_over_views(fcinfo->flinfo->fn_expr));
	if (refused)
		raise_failure(refused);
	return_rows((ReturnSetInfo *) fcinfo->resultinfo, DatumGetArrayTypeP(rows));
	fcinfo->isnull = true;
	return (Datum) 0;
}

/*
 * dp.run: the text was put there by the interception, which left the place of
 * the private aggregate in the statement of the client.
 */
Datum
dpsql_door(PG_FUNCTION_ARGS)
{
	Node	   *call = fcinfo->flinfo->fn_expr;
	int			location = call && IsA(call, FuncExpr) ? ((FuncExpr *) call)->location : -1;
	const char *source = location >= 0 ? debug_query_string : NULL;
	Question	question = {.handler = "run"};

	if (!wants_rows((ReturnSetInfo *) fcinfo->resultinfo))
		ereport(ERROR,
				(errcode(ERRCODE_DPSQL_UNSUPPORTED),
				 errmsg("dp.run must stand in FROM with a column definition list"),
				 errhint("Ask the question itself, or use dp.query('<question>').")));
	if (!PG_ARGISNULL(1))
		question.parameters = OidOutputFunctionCall(F_ARRAY_OUT, PG_GETARG_DATUM(1));
	return ask(fcinfo, &question, source, location, true);
}

/* The caller's own text, which is the last argument. */
static char *
source_argument(FunctionCallInfo fcinfo)
{
	int			last = PG_NARGS() - 1;

	return PG_ARGISNULL(last) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(last));
}

static void
require_rows_wanted(FunctionCallInfo fcinfo)
{
	if (!wants_rows((ReturnSetInfo *) fcinfo->resultinfo))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("set-valued function called in context that cannot accept a set")));
}

/* dp.run_json: as dp.run, with the level of intervals around the values */
Datum
dpsql_ask_json(PG_FUNCTION_ARGS)
{
	Question	question = {.handler = "run_json"};

	require_rows_wanted(fcinfo);
	if (!PG_ARGISNULL(1))
	{
		char	   *level = palloc(DOUBLE_SHORTEST_DECIMAL_LEN);

		double_to_shortest_decimal_buf(PG_GETARG_FLOAT8(1), level);
		question.arguments = psprintf("\"%s\"", level);
	}
	return ask(fcinfo, &question, source_argument(fcinfo), -1, false);
}

/* dp.explain_query, dp.estimate_query: what a question would cost, by the function's own name */
Datum
dpsql_ask_about(PG_FUNCTION_ARGS)
{
	Question	question = {.handler = get_func_name(fcinfo->flinfo->fn_oid)};

	require_rows_wanted(fcinfo);
	return ask(fcinfo, &question, source_argument(fcinfo), -1, false);
}

/*
 * dp.ask_service(handler text, query text, arguments text): what a function of
 * ours, which runs below a door, asks of the service session.
 */
Datum
dpsql_ask_service(PG_FUNCTION_ARGS)
{
	ErrorData  *refused;
	Datum		rows;
	Question	question = {
		.handler = text_to_cstring(PG_GETARG_TEXT_PP(0)),
		.query = text_to_cstring(PG_GETARG_TEXT_PP(1)),
		.arguments = text_to_cstring(PG_GETARG_TEXT_PP(2)),
		.role = asking_role(),
	};

	rows = ask_service(&question, &refused);
	if (refused && is_refusal(refused->sqlerrcode))
		raise_refusal(refused, NULL, -1, false, true, false);
	if (refused)
		raise_failure(refused);
	return rows;
}

/* Those that return rows and take no text. */
Datum
dpsql_door_table(PG_FUNCTION_ARGS)
{
	require_rows_wanted(fcinfo);
	return answer_rows(fcinfo, NULL, -1, false);
}

/* Those that return rows and are given the caller's own text as their last argument. */
Datum
dpsql_door_rows(PG_FUNCTION_ARGS)
{
	require_rows_wanted(fcinfo);
	return answer_rows(fcinfo, source_argument(fcinfo), -1, false);
}

/* Those that return one value and take no text. */
Datum
dpsql_door_value(PG_FUNCTION_ARGS)
{
	return answer(fcinfo, NULL, -1, false, false);
}

/* Those that return one value and are given the caller's own text as their last argument. */
Datum
dpsql_door_text(PG_FUNCTION_ARGS)
{
	return answer(fcinfo, source_argument(fcinfo), -1, false, false);
}

/*
 * A function in PL/pgSQL that asks a question which it wrote itself.  If the
 * question is refused, the caller sees neither its text nor the frames of the
 * function, since both mean nothing to him.  The function does not answer, so it
 * runs as it would without this entry point, except that the locks of its
 * statement are released.
 */
Datum
dpsql_door_asking(PG_FUNCTION_ARGS)
{
	FmgrInfo   *called = fcinfo->flinfo;
	FmgrInfo   *behind = function_behind(fcinfo, "asking");
	MemoryContext context = CurrentMemoryContext;
	volatile Datum result = (Datum) 0;

	PG_TRY();
	{
		fcinfo->flinfo = behind;
		result = call_apart(invoke_function, fcinfo);
		fcinfo->flinfo = called;
	}
	PG_CATCH();
	{
		ErrorData  *error;

		fcinfo->flinfo = called;
		if (!is_refusal(geterrcode()))
			PG_RE_THROW();
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		error->internalquery = NULL;
		raise_refusal(error, NULL, -1, false, true, false);
	}
	PG_END_TRY();
	return result;
}

/*
 * Say something to the client under its own client_min_messages and without
 * our frames: functions that run Python pin that setting so that nothing else
 * gets out.
 */
void
tell_caller(int level, const char *message, const char *detail, const char *hint)
{
	ErrorContextCallback *context = error_context_stack;
	int			messages = client_min_messages;

	if (current_caller)
	{
		error_context_stack = current_caller->context;
		client_min_messages = current_caller->messages;
	}
	ereport(level,
			(is_serving() ? errcode(ERRCODE_DPSQL_SAID) : 0,
			 errmsg_internal("%s", message),
			 detail ? errdetail_internal("%s", detail) : 0,
			 hint ? errhint("%s", hint) : 0));
	error_context_stack = context;
	client_min_messages = messages;
}

/* dp.warn(message text, detail text, hint text): a WARNING for the client */
Datum
dpsql_warn(PG_FUNCTION_ARGS)
{
	tell_caller(WARNING, text_to_cstring(PG_GETARG_TEXT_PP(0)),
				text_to_cstring(PG_GETARG_TEXT_PP(1)), text_to_cstring(PG_GETARG_TEXT_PP(2)));
	PG_RETURN_VOID();
}

/* A text, or NULL where it is empty. */
static const char *
text_if_any(text *given)
{
	return VARSIZE_ANY_EXHDR(given) > 0 ? text_to_cstring(given) : NULL;
}

/* dp.note(message text, detail text, hint text): a NOTICE for the client */
Datum
dpsql_note(PG_FUNCTION_ARGS)
{
	tell_caller(NOTICE, text_to_cstring(PG_GETARG_TEXT_PP(0)),
				text_if_any(PG_GETARG_TEXT_PP(1)), text_if_any(PG_GETARG_TEXT_PP(2)));
	PG_RETURN_VOID();
}
