/*
 * in_time.c
 *		dp.shards_timeout: how long a question waits for its servers, and writers
 *		for the question (docs/shards.md, "A limit for writers").
 *
 * The limit ends what is done by a cancel, as statement_timeout does, so that
 * it comes through whatever can be cancelled.  It is told apart from other
 * cancels here, and is nobody's but the question's: once the work is done, in
 * whichever way, no cancel of this limit is left to strike a later statement.
 *
 * The locks that writers wait for are let go before anything else is undone.
 * postgres_fdw ends a subtransaction by asking the other server to cancel, and
 * waits up to 30 seconds for a server that does not answer.
 */
#include "postgres.h"

#include <math.h>
#include <stdlib.h>

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/lwlock.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/timeout.h"

#include "dpsql.h"
#include "shards.h"

/* libpq's own limit for a connection, which no cancel interrupts before PostgreSQL 16 */
#define CONNECT_VARIABLE "PGCONNECT_TIMEOUT"

static TimeoutId limit;
static bool registered = false;
static volatile sig_atomic_t armed = false;
static volatile sig_atomic_t struck = false;

/* What writers wait for, in TopTransactionContext, and whose it is. */
static List *held = NIL;
static ResourceOwner held_by = NULL;

/* In the signal handler of timeouts, which sets the latch. */
static void
strike(void)
{
	if (!armed)
		return;
	struck = true;
	QueryCancelPending = true;
	InterruptPending = true;
}

static void
arm(bool *connect_limited)
{
	if (!registered)
		limit = RegisterTimeout(USER_TIMEOUT, strike);
	registered = true;
	struck = false;
	*connect_limited = false;
	if (shards_timeout == 0)
		return;
	if (getenv(CONNECT_VARIABLE) == NULL)
	{
		char		seconds[16];

		/* whole seconds of the clock, of which the first has begun: not before ours */
		snprintf(seconds, sizeof(seconds), "%d", (int) ceil(shards_timeout / 1000.0) + 1);
		*connect_limited = setenv(CONNECT_VARIABLE, seconds, 0) == 0;
	}
	armed = true;
	enable_timeout_after(limit, shards_timeout);
}

static void
disarm(bool connect_limited)
{
	armed = false;
	disable_timeout(limit, false);
	if (connect_limited)
		unsetenv(CONNECT_VARIABLE);
	/* an error follows in any case, whoever else wanted to cancel */
	if (struck)
		QueryCancelPending = false;
}

/* Whether the limit of the work that is under way, or was last, has struck. */
bool
time_is_up(void)
{
	return struck;
}

/* The limit in words. */
char *
time_allowed(void)
{
	return GetConfigOptionByName("dp.shards_timeout", NULL, false);
}

/*
 * Works until the limit.  Then "complain" raises an error, whether the work
 * came to an end or not; NULL: the work finds out by itself.
 */
void
in_time(void (*work) (void *), void (*complain) (void *), void *argument)
{
	MemoryContext context = CurrentMemoryContext;
	bool		connect_limited;

	arm(&connect_limited);
	PG_TRY();
	{
		work(argument);
	}
	PG_CATCH();
	{
		disarm(connect_limited);
		if (!struck || complain == NULL || geterrcode() != ERRCODE_QUERY_CANCELED)
			PG_RE_THROW();
		MemoryContextSwitchTo(context);
		FlushErrorState();
		complain(argument);
	}
	PG_END_TRY();
	disarm(connect_limited);
	if (struck && complain != NULL)
		complain(argument);
}

/* Locks in SHARE that let_go gives back; all are taken by the present owner. */
static void
hold(List *relations)
{
	MemoryContext before = MemoryContextSwitchTo(TopTransactionContext);

	held = list_copy(relations);
	held_by = CurrentResourceOwner;
	MemoryContextSwitchTo(before);
}

/* Also amid an error, before anything is undone, and at the end of a process. */
void
let_go(void)
{
	ResourceOwner before = CurrentResourceOwner;
	List	   *relations = held;
	ListCell   *cell;

	if (relations == NIL)
		return;
	held = NIL;
	LWLockReleaseAll();			/* an error may have left some */
	CurrentResourceOwner = held_by;
	foreach(cell, relations)
		UnlockRelationOid(lfirst_oid(cell), ShareLock);
	CurrentResourceOwner = before;
}

static void
let_go_at_end(int code, Datum argument)
{
	let_go();
}

/* Works while locks are held, and lets them go whatever happens. */
void
holding(List *relations, void (*work) (void *), void *argument)
{
	hold(relations);
	PG_ENSURE_ERROR_CLEANUP(let_go_at_end, (Datum) 0);
	{
		work(argument);
	}
	PG_END_ENSURE_ERROR_CLEANUP(let_go_at_end, (Datum) 0);
	let_go();
}
