/*
 * resources.c
 *		What a session brings along decides nothing about rows.
 *
 * Limits of memory and disk that rows of protected relations could reach are
 * moved out of the asker's reach while an answer is computed.  The rest of the
 * settings is pinned by plpython/settings.in; docs/sql.md lists all of them.
 *
 * temp_file_limit counts all temporary files of a backend, those of the asker's
 * own cursors as well, so that he could leave any part of it to the reading:
 * it does not bind.  Too little work_mem makes files so many that their buffers
 * take the memory instead; too much is more than the server has.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/guc.h"

#include "dpsql.h"

#define LEAST_WORK_MEM 4096		/* kB, PostgreSQL's default */
#define MOST_WORK_MEM 65536
#define MOST_HASH_MEM 2.0

/* What the administrator chose for all, at server start. */
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

/* Until the caller ends the level of settings that it began. */
void
pin_resources(void)
{
	int			memory = Max(LEAST_WORK_MEM, Min(work_mem, most_work_mem));
	const char *kinds = GetConfigOption("restrict_nonsystem_relation_kind", true, false);

	pin("temp_file_limit", "-1", PGC_SUSET);
	if (memory != work_mem)
		pin("work_mem", psprintf("%d", memory), PGC_USERSET);
	if (hash_mem_multiplier > most_hash_mem)
		pin("hash_mem_multiplier", psprintf("%g", most_hash_mem), PGC_USERSET);
	if (kinds && *kinds)		/* not every minor release has it */
		pin("restrict_nonsystem_relation_kind", "", PGC_USERSET);
}
