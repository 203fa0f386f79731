/*
 * service.h
 *		The service session: a backend that answers the questions of one other backend.
 */
#ifndef DPSQL_SERVICE_H
#define DPSQL_SERVICE_H

#include "postgres.h"

#include "fmgr.h"
#include "utils/elog.h"

/* The role that service sessions log in as. */
#define DPSQL_SERVICE_ROLE "dp_executor"

/*
 * Of notices and warnings of a service session: that it answers no further question, and what it
 * says to the client of the asker.  What PostgreSQL says there by itself is passed on to nobody.
 */
#define ERRCODE_DPSQL_LAST MAKE_SQLSTATE('P', 'D', '0', '0', '0')
#define ERRCODE_DPSQL_SAID MAKE_SQLSTATE('P', 'D', '0', '0', 'S')

/* Between the settings that the asker sends. */
#define SEPARATOR '\x1f'

/* What is asked of a service session.  Texts, or NULL. */
typedef struct Question
{
	const char *handler;		/* in dpsql/server/handlers.py */
	const char *query;
	const char *parameters;		/* text[] */
	const char *arguments;		/* the handler's own, as JSON */
	Oid			role;			/* who asks */
} Question;

/*
 * service.c, in the asking backend: send a question and wait for the rows as
 * an array of texts.  A refusal by the service is returned in *refused and not
 * raised.
 */
extern Datum ask_service(const Question *question, ErrorData **refused);

/* Close the connections to service sessions, also to one that was cancelled and goes on. */
extern void end_services(void);

/* said.c: messages of the service session, kept as libpq hands them over and told later */
struct pg_result;
extern void keep_message(void *unused, const struct pg_result *message);
extern void tell_said(void);
extern void forget_said(void);
extern bool said_last(void);
extern void forget_last(void);

/* group.c: be the leader of a lock group, from now on to the end. */
extern void lead_group(void);

/* door.c: say something to the client; detail and hint may be NULL */
extern void tell_caller(int level, const char *message, const char *detail, const char *hint);

/* door.c: on whose behalf a service session works */
extern void begin_serving(Oid role);
extern void end_serving(void);

/* serve.c: whether this backend is a service session that answers now. */
extern bool is_serving(void);
extern int	served_backend(void);

#endif							/* DPSQL_SERVICE_H */
