/*
 * refusals.c
 *		How many statements were refused, for dp.refusals.
 *
 * Counted is what reaches a client: an error of class PD, by database, role,
 * SQLSTATE, hint and hour.  No text that a statement could have a part in is
 * kept: messages and many hints repeat names and constants that it brought from
 * outside, so hints are those that stand in our sources word for word (hints.h,
 * by build_script.py), and of others nothing.  Whether something is
 * refused hangs on public facts only (PRIVACY.md section 2), and so do these
 * numbers, but for PD900, which the ledger shows as well.
 *
 * The counters are a table in shared memory, written to a file at shutdown and
 * read at start; a crash loses them, and dp.refusals_since() says so.  A row is
 * found in a handful of places, under a spinlock: a refusal never waits.  Where
 * all places are taken a row of the same role goes, else the oldest one.  Any role
 * can raise errors with our SQLSTATEs and hints, so that must cost nobody else
 * his counts; SQLSTATEs that dpsql does not have are not counted.
 */
#include "postgres.h"

#include <unistd.h>

#include "access/parallel.h"
#include "fmgr.h"
#include "funcapi.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/spin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "dpsql.h"
#include "service.h"
#include "hints.h"

#define ROWS 16384
#define PLACES 16				/* of one key */
#define CHUNK 128				/* rows copied at a time */
#define COLUMNS 5
#define STATE_FILE PGSTAT_STAT_PERMANENT_DIRECTORY "/dpsql_refusals.stat"
#define STATE_VERSION 0x64700002

PG_FUNCTION_INFO_V1(dpsql_refusal_counts);
PG_FUNCTION_INFO_V1(dpsql_refusals_since);

typedef struct
{
	Oid			database;
	Oid			role;			/* who asked */
	int32		sqlstate;
	int32		hour;			/* since 2000, UTC */
	uint32		hint;			/* hash of one of hints.h; 0: none of them */
	uint32		unused;
	int64		count;			/* 0: no row */
} Row;

typedef struct
{
	slock_t		mutex;
	TimestampTz since;			/* nothing later was lost */
	Row			rows[ROWS];
} Refusals;

static Refusals *refusals = NULL;

/* Hints by their order in hints.h, which sorts them. */
static uint32 hint_hashes[lengthof(hints)];

/* SQLSTATEs by their order in hints.h */
static int	state_codes[lengthof(states)];

static emit_log_hook_type next_emit = NULL;

static Size
area_size(void)
{
	return sizeof(Refusals);
}

/* Take over what the last shutdown wrote; what cannot be read counts from now on. */
static void
read_file(void)
{
	FILE	   *file = AllocateFile(STATE_FILE, PG_BINARY_R);
	uint32		version;
	bool		complete;

	if (!file)
		return;
	complete = fread(&version, sizeof version, 1, file) == 1 && version == STATE_VERSION &&
		fread(&refusals->since, sizeof refusals->since, 1, file) == 1 &&
		fread(refusals->rows, sizeof refusals->rows, 1, file) == 1;
	FreeFile(file);
	unlink(STATE_FILE);			/* after a crash it would be too old */
	if (!complete)
	{
		memset(refusals->rows, 0, sizeof refusals->rows);
		refusals->since = GetCurrentTimestamp();
		ereport(LOG,
				(errmsg("dpsql: the counts of refusals in \"%s\" cannot be read and begin anew",
						STATE_FILE)));
	}
}

static void
write_file(int code, Datum unused)
{
	const char *temporary = STATE_FILE ".tmp";
	uint32		version = STATE_VERSION;
	FILE	   *file;
	bool		complete;

	if (code != 0 || !refusals)
		return;
	file = AllocateFile(temporary, PG_BINARY_W);
	complete = file &&
		fwrite(&version, sizeof version, 1, file) == 1 &&
		fwrite(&refusals->since, sizeof refusals->since, 1, file) == 1 &&
		fwrite(refusals->rows, sizeof refusals->rows, 1, file) == 1;
	if (file && FreeFile(file) != 0)
		complete = false;
	if (complete)
		(void) durable_rename(temporary, STATE_FILE, LOG);
	else
	{
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("dpsql: cannot write the counts of refusals to \"%s\": %m", temporary)));
		unlink(temporary);
	}
}

static void
start(void *memory, bool found)
{
	refusals = memory;
	if (!IsUnderPostmaster)
		on_shmem_exit(write_file, (Datum) 0);
	if (found)
		return;
	memset(refusals, 0, sizeof(Refusals));
	SpinLockInit(&refusals->mutex);
	refusals->since = GetCurrentTimestamp();
	read_file();
}

/* The row of this key, or the one that makes room for it.  Under the lock. */
static Row *
row_of(const Row *key, uint32 hash)
{
	Row		   *oldest = NULL;
	Row		   *own = NULL;

	for (uint32 i = 0; i < PLACES; i++)
	{
		Row		   *row = &refusals->rows[(hash + i) % ROWS];

		if (row->count > 0 && row->database == key->database && row->role == key->role &&
			row->sqlstate == key->sqlstate && row->hour == key->hour && row->hint == key->hint)
			return row;
		if (!oldest || (oldest->count > 0 && (row->count == 0 || row->hour < oldest->hour)))
			oldest = row;
		if (row->database == key->database && row->role == key->role &&
			(!own || row->hour < own->hour))
			own = row;
	}
	if (oldest->count > 0 && own)
		oldest = own;
	if (oldest->count > 0)
	{
		TimestampTz lost = ((TimestampTz) oldest->hour + 1) * USECS_PER_HOUR;

		refusals->since = Max(refusals->since, lost);
	}
	*oldest = *key;
	return oldest;
}

static uint32
hash_of(const char *text)
{
	return hash_bytes((const unsigned char *) text, strlen(text));
}

static int
compare(const void *text, const void *hint)
{
	return strcmp((const char *) text, *(const char *const *) hint);
}

/* Also a hint of ours that is none of hints.h has no hash. */
static uint32
known_hint(const char *text)
{
	return text && bsearch(text, hints, lengthof(hints), sizeof hints[0], compare) ?
		hash_of(text) : 0;
}

static const char *
hint_text(uint32 hash)
{
	if (hint_hashes[0] == 0)
	{
		for (int i = 0; i < lengthof(hints); i++)
			hint_hashes[i] = hash_of(hints[i]);
	}
	for (int i = 0; i < lengthof(hints); i++)
	{
		if (hint_hashes[i] == hash)
			return hints[i];
	}
	return NULL;				/* of another version */
}

/* At server start; below a spinlock, and in an error, there is time for integers only. */
static void
read_states(void)
{
	for (int i = 0; i < lengthof(states); i++)
		state_codes[i] = MAKE_SQLSTATE(states[i][0], states[i][1], states[i][2], states[i][3],
									   states[i][4]);
}

static bool
is_known_state(int sqlstate)
{
	for (int i = 0; i < lengthof(states); i++)
	{
		if (state_codes[i] == sqlstate)
			return true;
	}
	return false;
}

static void
count(int sqlstate, const char *hint)
{
	Row			key = {0};
	uint32		hash;

	key.hint = known_hint(hint);
	key.database = MyDatabaseId;
	key.role = GetOuterUserId();
	key.sqlstate = sqlstate;
	key.hour = (int32) (GetCurrentTimestamp() / USECS_PER_HOUR);
	hash = hash_bytes((const unsigned char *) &key, offsetof(Row, count));
	SpinLockAcquire(&refusals->mutex);
	row_of(&key, hash)->count++;
	SpinLockRelease(&refusals->mutex);
}

/*
 * An error on its way to the client and the log.  Those of a parallel worker
 * are raised once more by the session that it works for.
 */
static void
watch(ErrorData *error)
{
	if (next_emit)
		next_emit(error);
	if (refusals && error->elevel == ERROR && OidIsValid(MyDatabaseId) && !IsParallelWorker() &&
		!is_serving() &&
		is_known_state(error->sqlerrcode))
		count(error->sqlerrcode, error->hint);
}

/* At server start. */
void
refusals_init(void)
{
	read_states();
	share((SharedArea) {"dpsql refusals", area_size, start});
	next_emit = emit_log_hook;
	emit_log_hook = watch;
}

/* dp.refusal_counts(): role, SQLSTATE, hour, number and hint, of this database. */
Datum
dpsql_refusal_counts(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	if (!refusals)
		return (Datum) 0;
	for (int from = 0; from < ROWS; from += CHUNK)
	{
		Row			some[CHUNK];

		SpinLockAcquire(&refusals->mutex);
		memcpy(some, &refusals->rows[from], sizeof some);
		SpinLockRelease(&refusals->mutex);
		for (int i = 0; i < CHUNK; i++)
		{
			Datum		values[COLUMNS];
			bool		nulls[COLUMNS] = {false};
			const char *hint;

			if (some[i].count == 0 || some[i].database != MyDatabaseId)
				continue;
			values[0] = ObjectIdGetDatum(some[i].role);
			values[1] = CStringGetTextDatum(unpack_sql_state(some[i].sqlstate));
			values[2] = TimestampTzGetDatum((TimestampTz) some[i].hour * USECS_PER_HOUR);
			values[3] = Int64GetDatum(some[i].count);
			hint = some[i].hint ? hint_text(some[i].hint) : NULL;
			nulls[4] = hint == NULL;
			values[4] = hint ? CStringGetTextDatum(hint) : (Datum) 0;
			tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
		}
	}
	return (Datum) 0;
}

/* dp.refusals_since(): since when none is missing; NULL where none is counted. */
Datum
dpsql_refusals_since(PG_FUNCTION_ARGS)
{
	TimestampTz since;

	/* an error that is not logged does not come by */
	if (!refusals || log_min_messages > ERROR || log_min_messages == LOG)
		PG_RETURN_NULL();
	SpinLockAcquire(&refusals->mutex);
	since = refusals->since;
	SpinLockRelease(&refusals->mutex);
	PG_RETURN_TIMESTAMPTZ(since);
}
