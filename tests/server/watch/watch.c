/*
 * watch.c
 *		For tests only: tells of every scan of a watched relation that no door of dpsql started.
 *
 * After the executor has set up a plan, the relations that its nodes have opened are looked at,
 * not those that it names: a replaced query names relations that nobody reads.  Reading belongs
 * to a door (sql/hook/door.c) where the current user is dp_executor and track_counts is off,
 * which a door turns off and no analyst can.  An alarm is a line in a file, so that no block with
 * EXCEPTION, no savepoint and no setting hides it.
 */
#include "postgres.h"

#include <fcntl.h>
#include <unistd.h>

#include "access/xact.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "nodes/nodeFuncs.h"
#include "pgstat.h"
#include "tcop/tcopprot.h"
#include "utils/acl.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

static char *watched = NULL;	/* OIDs, separated by commas */
static char *alarms = NULL;		/* the file */
static bool doors = false;		/* tell of what doors read, too */
static ExecutorStart_hook_type previous_start = NULL;

static bool
is_watched(Oid relation)
{
	const char *at = watched;

	while (at && *at)
	{
		char	   *end;

		if ((Oid) strtoul(at, &end, 10) == relation)
			return true;
		at = *end == ',' ? end + 1 : NULL;
	}
	return false;
}

static bool
door_reads(void)
{
	return !pgstat_track_counts && GetUserId() == get_role_oid("dp_executor", true);
}

static void
alarm_of(Relation relation, const char *how)
{
	char		line[1024];
	int			file;
	int			length;

	if (relation == NULL || !is_watched(RelationGetRelid(relation)) || (!doors && door_reads()))
		return;
	length = snprintf(line, sizeof(line), "%s %s as %s: %s\n", how,
					  RelationGetRelationName(relation), GetUserNameFromId(GetUserId(), true),
					  debug_query_string ? debug_query_string : "");
	length = Min(length, (int) sizeof(line) - 1);
	line[length - 1] = '\n';
	file = open(alarms ? alarms : "", O_WRONLY | O_APPEND);
	if (file < 0 || write(file, line, length) != length || close(file) != 0)
		elog(PANIC, "no alarm can be given in \"%s\"", alarms ? alarms : "");
}

static bool
look(PlanState *node, void *context)
{
	switch (nodeTag(node))
	{
		case T_SeqScanState:
		case T_SampleScanState:
		case T_IndexScanState:
		case T_IndexOnlyScanState:
		case T_BitmapHeapScanState:
		case T_TidScanState:
		case T_TidRangeScanState:
		case T_ForeignScanState:
		case T_CustomScanState:
			alarm_of(((ScanState *) node)->ss_currentRelation, "scan of");
			break;
		case T_ModifyTableState:
			{
				ModifyTableState *change = (ModifyTableState *) node;

				for (int i = 0; i < change->mt_nrels; i++)
					alarm_of(change->resultRelInfo[i].ri_RelationDesc, "change of");
			}
			break;
		default:
			break;
	}
	return planstate_tree_walker(node, look, context);
}

static void
start(QueryDesc *query, int flags)
{
	ListCell   *cell;

	if (previous_start)
		previous_start(query, flags);
	else
		standard_ExecutorStart(query, flags);
	if (!IsTransactionState() || (flags & EXEC_FLAG_EXPLAIN_ONLY))
		return;
	if (query->planstate)
		look(query->planstate, NULL);
	/* planstate_tree_walker reaches initplans where they are evaluated; here are all of them */
	foreach(cell, query->estate->es_subplanstates)
	{
		if (lfirst(cell))
			look((PlanState *) lfirst(cell), NULL);
	}
}

void
_PG_init(void)
{
	DefineCustomStringVariable("watch.relations", "OIDs of the relations that are watched.", NULL,
							   &watched, "", PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomStringVariable("watch.alarms", "The file that alarms are written to.", NULL,
							   &alarms, "", PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("watch.doors", "Whether reads by doors are told, too.", NULL,
							 &doors, false, PGC_SUSET, 0, NULL, NULL, NULL);
	previous_start = ExecutorStart_hook;
	ExecutorStart_hook = start;
}
