/*
 * group.c
 *		The lock group of an asking backend and its service sessions.
 *
 * PostgreSQL expects that the leader of a lock group ends after its members, as
 * a leader of parallel workers does.  A member that ends last never gives its
 * PGPROC back (ProcKill), and the server has a connection less until it is
 * started again.  So an asking backend that ends waits for its service sessions,
 * which end because nobody is connected to them any more.
 */
#include "postgres.h"

#include "lib/ilist.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lock.h"
#include "storage/lwlock.h"
#include "storage/pmsignal.h"
#include "storage/proc.h"

#include "service.h"

#define FIRST_PAUSE 500L		/* microseconds */
#define LAST_PAUSE 20000L

/* Leave if nobody else is in the group; then nobody can join any more. */
static bool
leave_group(void)
{
	LWLock	   *partition = LockHashPartitionLockByProc(MyProc);
	bool		alone;

	LWLockAcquire(partition, LW_EXCLUSIVE);
	alone = dlist_head_node(&MyProc->lockGroupMembers) == &MyProc->lockGroupLink &&
		!dlist_has_next(&MyProc->lockGroupMembers, &MyProc->lockGroupLink);
	if (alone)
	{
		dlist_delete(&MyProc->lockGroupLink);
		MyProc->lockGroupLeader = NULL;
	}
	LWLockRelease(partition);
	return alone;
}

/* Locks and parallel workers are gone here: the transaction has been aborted before. */
static void
end_group(int code, Datum unused)
{
	long		pause = FIRST_PAUSE;

	end_services();
	while (!leave_group() && PostmasterIsAlive())
	{
		pg_usleep(pause);
		pause = Min(2 * pause, LAST_PAUSE);
	}
}

void
lead_group(void)
{
	static bool leads = false;

	if (leads)
		return;
	on_shmem_exit(end_group, (Datum) 0);
	leads = true;
	BecomeLockGroupLeader();
}
