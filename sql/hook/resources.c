/*
 * resources.c
 *		Resource limits of the session must not depend on the asker.
 *
 * An error at a limit of memory or disk tells how much the rows needed.  While
 * an answer is computed, limits that rows of protected relations could reach
 * are therefore set here, whatever the session has set.  All other settings
 * are pinned by plpython/settings.in; docs/sql.md lists them.
 *
 * temp_file_limit counts all temporary files of a backend, also those of the
 * asker's own cursors, so the asker decides how much of it is left: it is
 * lifted.  With too little work_mem there are so many files that their buffers
 * use up the memory; with too much, one query can use up the server's memory.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/guc.h"

#include "dpsql.h"

#define LEAST_WORK_MEM 4096		/* kB, PostgreSQL's default */
#define MOST_WORK_MEM 65536
#define MOST_HASH_MEM 2.0

/* Upper limits: the defaults, or the values at server start if larger. */
static int	most_work_mem = MOST_WORK_MEM;
static double most_hash_mem = MOST_HASH_MEM;

void
resources_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
		return;
	most_work_mem = Max(most_work_mem, work_mem);
	most_hash_mem = Max(most_hash_mem, hash_mem_multiplier);
}

static void
pin(const char *name, const char *value, GucContext context)
{
	(void) set_config_option(name, value, context, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
}

/* The values hold until the caller ends its GUC nest level. */
void
pin_resources(void)
{
	int			memory = Max(LEAST_WORK_MEM, Min(work_mem, most_work_mem));
	const char *kinds = GetConfigOption("restrict_nonsystem_relation_kind", true, false);

	pin("temp_file_limit", "-1", PGC_SUSET);
	/* its own value, so that it is restored after the question: dpsql/server/session.py sets 0 after the charge */
	pin("lock_timeout", GetConfigOption("lock_timeout", false, false), PGC_USERSET);
	if (memory != work_mem)
		pin("work_mem", psprintf("%d", memory), PGC_USERSET);
	if (hash_mem_multiplier > most_hash_mem)
		pin("hash_mem_multiplier", psprintf("%g", most_hash_mem), PGC_USERSET);
	if (kinds && *kinds)		/* older minor releases do not have it */
		pin("restrict_nonsystem_relation_kind", "", PGC_USERSET);
}
