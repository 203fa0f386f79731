/*
 * said.c
 *		Messages of the service session, for the client of the asking backend.
 *
 * libpq hands messages over in the middle of its work.  An error, or an interrupt,
 * that jumped out of it would leave the connection in a state that nobody knows.
 * So messages are kept, and passed on between two calls of libpq.
 */
#include "postgres.h"

#include <libpq-fe.h>

#include "dpsql.h"
#include "service.h"

/* A message of dpsql that the client was not sent yet.  From malloc(): palloc() could raise an error inside libpq. */
typedef struct Said
{
	struct Said *next;
	int			level;
	char	   *message;
	char	   *detail;
	char	   *hint;
} Said;

static Said *said = NULL;
static bool last_question = false;

static char *
kept(const char *text)
{
	return text ? strdup(text) : NULL;
}

static void
forget_first(void)
{
	Said	   *first = said;

	said = first->next;
	free(first->message);
	free(first->detail);
	free(first->hint);
	free(first);
}

void
forget_said(void)
{
	while (said)
		forget_first();
}

/* Pass it on to the client, under the client's own settings. */
void
tell_said(void)
{
	while (said)
	{
		int			level = said->level;
		char	   *message = pstrdup(said->message ? said->message : "");
		char	   *detail = said->detail ? pstrdup(said->detail) : NULL;
		char	   *hint = said->hint ? pstrdup(said->hint) : NULL;

		forget_first();
		tell_caller(level, message, detail, hint);
	}
}

/* Keep a message.  Called by libpq, out of which no error and no interrupt may jump. */
void
keep_message(void *unused, const PGresult *message)
{
	const char *state = PQresultErrorField(message, PG_DIAG_SQLSTATE);
	const char *severity = PQresultErrorField(message, PG_DIAG_SEVERITY_NONLOCALIZED);

	if (state && strcmp(state, unpack_sql_state(ERRCODE_DPSQL_LAST)) == 0)
		last_question = true;
	if (state && strcmp(state, unpack_sql_state(ERRCODE_DPSQL_SAID)) == 0)
	{
		Said	   *one = calloc(1, sizeof(Said));
		Said	  **end = &said;

		if (one == NULL)
			return;
		one->level = severity && strcmp(severity, "WARNING") == 0 ? WARNING : NOTICE;
		one->message = kept(PQresultErrorField(message, PG_DIAG_MESSAGE_PRIMARY));
		one->detail = kept(PQresultErrorField(message, PG_DIAG_MESSAGE_DETAIL));
		one->hint = kept(PQresultErrorField(message, PG_DIAG_MESSAGE_HINT));
		while (*end)
			end = &(*end)->next;
		*end = one;
	}
}

/* Whether the service session said that it answers no further question. */
bool
said_last(void)
{
	return last_question;
}

/* A new service session has not said so. */
void
forget_last(void)
{
	last_question = false;
}
