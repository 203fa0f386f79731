/*
 * frames.c
 *		The context of a refusal, without the functions of dpsql in it.
 *
 * A refusal names what is wrong and what to do; through which functions of ours
 * it came means nothing to who called one.  What called us stays.  Not touched
 * are errors of other classes and PD9nn: bugs are found by their context.
 * Nothing is told that was not told before.
 */
#include "postgres.h"

#include "utils/elog.h"

#include "dpsql.h"

/* PostgreSQL's words, as far as lc_messages leaves them. */
#define OWN "PL/pgSQL function dp."

static emit_log_hook_type next_emit = NULL;

/* The text behind the outermost frame of ours; NULL where there is none. */
static char *
behind_own(char *context)
{
	char	   *rest = NULL;

	for (char *line = context; *line != '\0';)
	{
		char	   *end = strchr(line, '\n');
		char	   *next = end ? end + 1 : line + strlen(line);

		if (strncmp(line, OWN, strlen(OWN)) == 0)
			rest = next;
		line = next;
	}
	return rest;
}

static bool
is_refusal(int sqlstate)
{
	return ERRCODE_TO_CATEGORY(sqlstate) == MAKE_SQLSTATE('P', 'D', '0', '0', '0') &&
		PGUNSIXBIT(sqlstate >> 12) != '9';
}

/* An error on its way to the client and the log. */
static void
shorten(ErrorData *error)
{
	char	   *rest;

	if (next_emit)
		next_emit(error);
	if (error->elevel != ERROR || !error->context || !is_refusal(error->sqlerrcode))
		return;
	rest = behind_own(error->context);
	if (rest && *rest == '\0')
		error->context = NULL;
	else if (rest)
		memmove(error->context, rest, strlen(rest) + 1);
}

/* At server start. */
void
frames_init(void)
{
	next_emit = emit_log_hook;
	emit_log_hook = shorten;
}
