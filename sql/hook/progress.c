/*
 * progress.c
 *		What long commands of all sessions are doing, for dp.progress.
 *
 * The server's own progress counters are for its own commands only, so there
 * is an array in shared memory here, a slot for each backend.  Each writes its
 * own slot; dp.progress_slots() copies them all and is granted to nobody: the
 * function behind the view decides who sees what (sql/views/progress.sql).
 *
 * A slot is cleared by the command when it ends, and by the end of the
 * transaction, or of the subtransaction, in which it began: errors, cancels
 * and terminated sessions included.
 *
 * Without the library in shared_preload_libraries there is no shared memory of
 * ours.  Then advisory locks show relation and phase as well as they can.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type_d.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/shmem.h"
#include "storage/spin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "dpsql.h"
#include "service.h"

/* More are left out; the number of protected ones says so. */
#define MAX_RELATIONS 32
/* First half of the keys of the advisory locks; sql/views/progress.sql reads them. */
#define LOCK_BASE 1685082880
#define COLUMNS 15
/* The command that takes no locks: they would show it as a release. */
#define PLAN 4

PG_FUNCTION_INFO_V1(dpsql_show_phase);
PG_FUNCTION_INFO_V1(dpsql_show_rounds);
PG_FUNCTION_INFO_V1(dpsql_end_progress);
PG_FUNCTION_INFO_V1(dpsql_keeps_progress);
PG_FUNCTION_INFO_V1(dpsql_progress_slots);

/* A negative number is not known. */
typedef struct
{
	int			pid;			/* of the backend that asks; 0: nothing runs */
	Oid			database;
	Oid			role;			/* who asks and pays */
	int			command;
	int			phase;
	int			relation_number;
	int			protected_number;	/* so many of the first relations are protected */
	Oid			relations[MAX_RELATIONS];
	TimestampTz started;		/* the command */
	TimestampTz counting;		/* since when rounds are counted */
	TimestampTz counted;		/* when the last one was */
	int64		done;
	int64		total;
	int64		left;			/* rounds that are expected, where the total is not known */
	float8		used;			/* of the budget */
	float8		budget;
	int			unit;			/* 1: epsilon, 2: rho */
} Progress;

typedef struct
{
	slock_t		mutex;
	Progress	progress;
} Slot;

static Slot *slots = NULL;
static int	slot_number = 0;
static SubTransactionId began_in = InvalidSubTransactionId;

static Size
area_size(void)
{
	return mul_size(MaxBackends, sizeof(Slot));
}

static void
start(void *memory, bool found)
{
	slot_number = MaxBackends;
	slots = memory;
	if (found)
		return;
	memset(slots, 0, area_size());
	for (int i = 0; i < slot_number; i++)
		SpinLockInit(&slots[i].mutex);
}

/* At server start. */
void
progress_init(void)
{
	share((SharedArea) {"dpsql progress", area_size, start});
}

/* This backend's slot, or NULL. */
static Slot *
own_slot(void)
{
	int			place = compat_backend_place();

	return slots && place >= 0 && place < slot_number ? &slots[place] : NULL;
}

/* Whether this session shows a command. */
bool
progress_is_shown(void)
{
	return began_in != InvalidSubTransactionId;
}

/* Stop showing the command of this session. */
void
progress_clear(void)
{
	Slot	   *slot = own_slot();

	if (began_in == InvalidSubTransactionId || !slot)
		return;
	began_in = InvalidSubTransactionId;
	SpinLockAcquire(&slot->mutex);
	slot->progress.pid = 0;
	SpinLockRelease(&slot->mutex);
}

static void
at_end(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
		progress_clear();
}

/*
 * A call that only reads rolls its subtransaction back and goes on (locks.c), so
 * its progress stays shown.  If the call fails, door.c clears it.
 */
static void
at_sub_end(SubXactEvent event, SubTransactionId mine, SubTransactionId parent, void *arg)
{
	if (mine != began_in)
		return;
	if (event == SUBXACT_EVENT_COMMIT_SUB || (event == SUBXACT_EVENT_ABORT_SUB && below_door()))
		began_in = parent;
	else if (event == SUBXACT_EVENT_ABORT_SUB)
		progress_clear();
}

static void
watch_transactions(void)
{
	static bool watching = false;

	if (watching)
		return;
	RegisterXactCallback(at_end, NULL);
	RegisterSubXactCallback(at_sub_end, NULL);
	watching = true;
}

static void
show_by_locks(const Oid *relations, int number, int phase)
{
	for (int i = 0; i < number; i++)
	{
		int64		key = ((int64) (LOCK_BASE + phase)) << 32 | relations[i];

		DirectFunctionCall1(pg_try_advisory_xact_lock_shared_int8, Int64GetDatum(key));
	}
}

/*
 * dp.show_phase(command, phase, relations, protected): the running command
 * enters a phase.  It is a new command unless one of the same kind is shown.
 */
Datum
dpsql_show_phase(PG_FUNCTION_ARGS)
{
	int			command = PG_GETARG_INT32(0);
	int			phase = PG_GETARG_INT32(1);
	ArrayType  *array = PG_GETARG_ARRAYTYPE_P(2);
	int			protected_number = PG_GETARG_INT32(3);
	Slot	   *slot = own_slot();
	Progress	now = {0};
	Oid		   *relations = (Oid *) ARR_DATA_PTR(array);
	int			number = ARR_NDIM(array) == 0 ? 0 : ARR_DIMS(array)[0];

	if (ARR_NDIM(array) > 1 || ARR_HASNULL(array) || ARR_ELEMTYPE(array) != OIDOID)
		elog(ERROR, "dp.show_phase takes a plain array of relations");
	if (!slot)
	{
		if (command != PLAN)
			show_by_locks(relations, number, phase);
		PG_RETURN_VOID();
	}
	watch_transactions();
	now.pid = is_serving() ? served_backend() : MyProcPid;
	now.database = MyDatabaseId;
	now.role = asking_role();
	now.command = command;
	now.phase = phase;
	now.relation_number = Min(number, MAX_RELATIONS);
	now.protected_number = protected_number;
	memcpy(now.relations, relations, sizeof(Oid) * now.relation_number);
	now.started = now.counting = now.counted = GetCurrentTimestamp();
	now.done = now.total = now.left = -1;
	now.used = now.budget = -1;
	/* nobody else writes it, so that reading needs no lock */
	if (began_in != InvalidSubTransactionId && slot->progress.command == command)
	{
		now.started = slot->progress.started;
		now.used = slot->progress.used;
		now.budget = slot->progress.budget;
		now.unit = slot->progress.unit;
	}
	else
		began_in = GetCurrentSubTransactionId();
	SpinLockAcquire(&slot->mutex);
	slot->progress = now;
	SpinLockRelease(&slot->mutex);
	PG_RETURN_VOID();
}

/* Any rounds that were done in this phase; a negative number leaves what there is. */
static void
count_rounds(Slot *slot, int64 done, int64 total, int64 left, TimestampTz now)
{
	Progress   *progress = &slot->progress;

	if (done == 0)
		progress->counting = now;
	progress->counted = now;
	progress->done = done;
	if (total >= 0)
		progress->total = total;
	progress->left = left;
}

/*
 * dp.show_rounds(done, total, left, used, budget, unit): so many rounds of the
 * phase are done.  What is null is not known, or as before (total, budget, unit).
 */
Datum
dpsql_show_rounds(PG_FUNCTION_ARGS)
{
	Slot	   *slot = own_slot();
	TimestampTz now = GetCurrentTimestamp();
	int64		done = PG_ARGISNULL(0) ? -1 : PG_GETARG_INT64(0);
	int64		total = PG_ARGISNULL(1) ? -1 : PG_GETARG_INT64(1);
	int64		left = PG_ARGISNULL(2) ? -1 : PG_GETARG_INT64(2);
	float8		used = PG_ARGISNULL(3) ? -1 : PG_GETARG_FLOAT8(3);
	float8		budget = PG_ARGISNULL(4) ? -1 : PG_GETARG_FLOAT8(4);
	int			unit = PG_ARGISNULL(5) ? 0 : PG_GETARG_INT32(5);

	if (!slot || began_in == InvalidSubTransactionId)
		PG_RETURN_VOID();
	SpinLockAcquire(&slot->mutex);
	if (done >= 0)
		count_rounds(slot, done, total, left, now);
	if (used >= 0)
		slot->progress.used = used;
	if (budget >= 0)
		slot->progress.budget = budget;
	if (unit > 0)
		slot->progress.unit = unit;
	SpinLockRelease(&slot->mutex);
	PG_RETURN_VOID();
}

/* The same from C, for what is done many times: so many rounds more. */
void
progress_add_rounds(int64 more)
{
	Slot	   *slot = own_slot();
	TimestampTz now = GetCurrentTimestamp();

	if (!slot || began_in == InvalidSubTransactionId || slot->progress.done < 0)
		return;
	SpinLockAcquire(&slot->mutex);
	slot->progress.done += more;
	slot->progress.counted = now;
	SpinLockRelease(&slot->mutex);
}

/* dp.end_progress(): the command ended well. */
Datum
dpsql_end_progress(PG_FUNCTION_ARGS)
{
	progress_clear();
	PG_RETURN_VOID();
}

/* dp.keeps_progress(): is there shared memory, or do locks show what they can? */
Datum
dpsql_keeps_progress(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(slots != NULL);
}

static ArrayType *
relation_array(const Progress *progress)
{
	Datum		elements[MAX_RELATIONS];

	for (int i = 0; i < progress->relation_number; i++)
		elements[i] = ObjectIdGetDatum(progress->relations[i]);
	return construct_array(elements, progress->relation_number, OIDOID, sizeof(Oid), true,
						   TYPALIGN_INT);
}

/* dp.progress_slots(): a row for each command that runs in this database. */
Datum
dpsql_progress_slots(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < slot_number; i++)
	{
		Progress	one;
		Datum		values[COLUMNS];
		bool		nulls[COLUMNS] = {false};

		SpinLockAcquire(&slots[i].mutex);
		one = slots[i].progress;
		SpinLockRelease(&slots[i].mutex);
		if (one.pid == 0 || one.database != MyDatabaseId)
			continue;
		values[0] = Int32GetDatum(one.pid);
		values[1] = ObjectIdGetDatum(one.role);
		values[2] = Int32GetDatum(one.command);
		values[3] = Int32GetDatum(one.phase);
		values[4] = PointerGetDatum(relation_array(&one));
		values[5] = Int32GetDatum(one.protected_number);
		values[6] = TimestampTzGetDatum(one.started);
		values[7] = TimestampTzGetDatum(one.counting);
		values[8] = TimestampTzGetDatum(one.counted);
		values[9] = Int64GetDatum(one.done);
		nulls[9] = one.done < 0;
		values[10] = Int64GetDatum(one.total);
		nulls[10] = one.total < 0;
		values[11] = Int64GetDatum(one.left);
		nulls[11] = one.left < 0;
		values[12] = Float8GetDatum(one.used);
		nulls[12] = one.used < 0;
		values[13] = Float8GetDatum(one.budget);
		nulls[13] = one.budget < 0;
		values[14] = Int32GetDatum(one.unit);
		nulls[14] = one.unit == 0;
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}
