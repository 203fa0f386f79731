/*
 * dpsql.c
 *		Entry point of the module.
 *
 * The module does as little as possible: it owns the settings, replaces
 * queries that hold a private aggregate by a call of dp.run, and gives the
 * Python side the few functions that need the server's internals.  Every
 * decision about privacy is taken there.
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"

#include "compat.h"
#include "dpsql.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

/*
 * Interception needs every backend from its first statement on; a library that
 * a C function pulled in later gives the functions, the settings and the guard
 * of dp_executor only.
 */
void
_PG_init(void)
{
	settings_init();
	executed_init();
	triggers_init();
	shards_init();
	sent_init();
	claims_init();
	locks_init();
	dead_rows_init();
	if (process_shared_preload_libraries_in_progress)
	{
		intercept_init();
		stored_init();
		denied_init();
		before_locks_init();
		explain_init();
		mask_init();
		progress_init();
		version_init();
		held_init();
		refusals_init();
		frames_init();
		preload_init();
	}
}
