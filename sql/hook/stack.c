/*
 * stack.c
 *		Refuse questions when much of the stack is already in use.
 *
 * Every check_stack_depth() of the server raises an error once max_stack_depth
 * is reached.  If little were left where rows are read, a row could decide
 * whether LIKE raises the error, since LIKE recurses for each wildcard that the
 * row's text matches.  The stack of a service session is nearly empty when a
 * question starts, so that only max_stack_depth has to be large enough.  A
 * release or a synthesis is planned in the asker's backend, on a stack that the
 * asker may have filled by a DO block that executes itself: it is refused there,
 * before the charge, if more than STACK_USED is in use.
 *
 * Upper bounds of the stack between an entry point and the deepest call that
 * depends on rows (x86-64, PostgreSQL 15 to 18; constants.py and emit.py limit
 * patterns and expressions):
 *
 * calls to the reading statement	64 kB, dp.read_together and two PL/Python calls
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

/* Return the bytes in use, computed as check_stack_depth() does. */
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
				 errdetail("It is %d kB.  At least %ld kB are needed.", max_stack_depth, (STACK_LEFT + STACK_USED) / 1024),
				 errhint("Ask a superuser for ALTER SYSTEM SET max_stack_depth = '2MB' and SELECT pg_reload_conf().")));
	if (used > STACK_USED)
		ereport(ERROR,
				(errcode(ERRCODE_DPSQL_UNSUPPORTED),
				 errmsg("questions cannot be asked from so deeply nested calls"),
				 errdetail("%ld kB of the stack are in use; at most %ld kB are allowed.",
						   used / 1024, STACK_USED / 1024),
				 errhint("Ask the question outside of the nested functions and blocks.")));
}
