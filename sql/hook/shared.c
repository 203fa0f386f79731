/*
 * shared.c
 *		Areas in shared memory, which the library asks for at server start.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

#include "dpsql.h"

#define MOST_AREAS 8
static SharedArea areas[MOST_AREAS];
static int	area_count = 0;

static shmem_request_hook_type next_request = NULL;
static shmem_startup_hook_type next_startup = NULL;

static void
request(void)
{
	if (next_request)
		next_request();
	for (int i = 0; i < area_count; i++)
		RequestAddinShmemSpace(areas[i].size());
}

static void
startup(void)
{
	if (next_startup)
		next_startup();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	for (int i = 0; i < area_count; i++)
	{
		bool		found;
		void	   *memory = ShmemInitStruct(areas[i].name, areas[i].size(), &found);

		areas[i].start(memory, found);
	}
	LWLockRelease(AddinShmemInitLock);
}

/* Ask for an area while preloaded libraries are loaded. */
void
share(SharedArea area)
{
	if (area_count == 0)
	{
		next_request = shmem_request_hook;
		shmem_request_hook = request;
		next_startup = shmem_startup_hook;
		shmem_startup_hook = startup;
	}
	Assert(area_count < MOST_AREAS);
	areas[area_count++] = area;
}
