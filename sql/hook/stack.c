/*
 * stack.c
 *		A question starts on a stack that is nearly empty.
 *
 * Functions that call themselves, and every check_stack_depth() of the server,
 * fail once max_stack_depth is reached.  An asker chooses how much of it is in
 * use when a question starts: a DO block that executes itself, a view of views.
 * If little were left, whether LIKE fails would depend on how many wildcards
 * the text of a row matches.  So a question is refused, at no cost, unless
 * STACK_LEFT is left of max_stack_depth and no more than STACK_USED is in use.
 *
 * Needed between a door and the deepest call that rows can decide about, at
 * most (x86-64, PostgreSQL 15 to 18; constants.py and emit.py have the caps):
 *
 * the way to the reading statement	64 kB, dp.read_together below two doors
 * planner and executor				96 kB, a plan over twelve relations
 * LIKE								64 kB, 256 wildcards of 256 bytes
 * comparisons, conversions			32 kB, buffers of the C library's locales
 *
 * STACK_LEFT is four times their sum.
 */
#include "postgres.h"

#include <stdlib.h>

#include "miscadmin.h"
#include "tcop/tcopprot.h"

#include "dpsql.h"

#define STACK_LEFT (1024 * 1024L)
#define STACK_USED (256 * 1024L)

/* How much is in use, as check_stack_depth() computes it. */
static long
stack_in_use(void)
{
	char		here = 0;
	pg_stack_base_t base = set_stack_base();
	long		used = labs((long) (base - (pg_stack_base_t) &here));

	restore_stack_base(base);
	return used;
}

void
require_stack(void)
{
	long		used = stack_in_use();
	long		most = max_stack_depth * 1024L;

	if (most < STACK_LEFT + STACK_USED)
		ereport(ERROR,
				(errcode(ERRCODE_DPSQL_UNSUPPORTED),
				 errmsg("max_stack_depth is too small for questions"),
				 errdetail("It is %d kB.  Rows must not decide whether it suffices.", max_stack_depth),
				 errhint("Ask a superuser for ALTER SYSTEM SET max_stack_depth = '2MB' and SELECT pg_reload_conf().")));
	if (used > STACK_USED)
		ereport(ERROR,
				(errcode(ERRCODE_DPSQL_UNSUPPORTED),
				 errmsg("a question cannot be asked below so many calls of functions"),
				 errdetail("%ld kB of the stack are in use, at most %ld kB may be.",
						   used / 1024, STACK_USED / 1024),
				 errhint("Take the question out of the functions and blocks that call each other.")));
}
