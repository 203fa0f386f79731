/*
 * changes.c
 *		Counting changes of relations, for statistics that are older than the data.
 *
 * AFTER STATEMENT triggers append a row to dp.change with what the statement
 * inserted and updated, by the server's own counters of this transaction, and
 * the old primary keys of updated rows to dp.changed_key.  A row of these is
 * visible to exactly the snapshots that see the change itself.
 *
 * The counters are cumulative, so what was appended before is remembered and
 * subtracted, level by level: like the server's own counters, what a
 * subtransaction appended belongs to it until it commits, and is gone when it
 * aborts.  Counts of aborted subtransactions are never appended: one row that
 * was tried several times would move them by more than docs/proofs/stale.md
 * allows.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "partitioning/partdesc.h"
#include "pgstat.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/pgstat_internal.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "compat.h"
#include "dpsql.h"

PG_FUNCTION_INFO_V1(dpsql_count_changes);
PG_FUNCTION_INFO_V1(dpsql_changed_here);

typedef struct Entry Entry;

/* What one level of the transaction has appended for one relation. */
typedef struct Record
{
	Entry	   *entry;
	int			level;
	int64		inserted;
	int64		updated;
	struct Record *upper;		/* of the same relation, at an outer level */
	struct Record *next;		/* of the same level */
} Record;

struct Entry
{
	Oid			relation;		/* hash key */
	Record	   *top;
};

typedef struct Level
{
	int			level;
	Record	   *first;
	struct Level *upper;
} Level;

/* All of it lives and ends with the transaction. */
static HTAB *entries = NULL;
static Level *levels = NULL;

/* The client's statement in which the server last did not count. */
static bool paused = false;
static TimestampTz paused_statement;

static SPIPlanPtr append_plan = NULL;

/*
 * door.c turns the server's counters off while it reads.  A relation that is
 * opened then is not counted again until it is opened anew, so an INSERT
 * around the question loses counts.
 */
void
changes_pause(void)
{
	paused = true;
	paused_statement = GetCurrentStatementStartTimestamp();
}

static bool
is_counting(void)
{
	return pgstat_track_counts &&
		!(paused && paused_statement == GetCurrentStatementStartTimestamp());
}

/* Remember a record at the front of its level's list. */
static void
enlist(Record *record)
{
	if (levels == NULL || levels->level != record->level)
	{
		Level	   *level = MemoryContextAlloc(TopTransactionContext, sizeof(Level));

		level->level = record->level;
		level->first = NULL;
		level->upper = levels;
		levels = level;
	}
	record->next = levels->first;
	levels->first = record;
}

static void
end_subtransaction(SubXactEvent event, SubTransactionId mine, SubTransactionId parent, void *arg)
{
	int			ending = GetCurrentTransactionNestLevel();
	Level	   *ended = levels;
	Record	   *record;

	if ((event != SUBXACT_EVENT_COMMIT_SUB && event != SUBXACT_EVENT_ABORT_SUB) ||
		levels == NULL || levels->level < ending)
		return;
	record = ended->first;
	levels = ended->upper;
	pfree(ended);
	while (record)
	{
		Record	   *next = record->next;
		bool		commit = event == SUBXACT_EVENT_COMMIT_SUB;

		if (!commit || (record->upper && record->upper->level == ending - 1))
		{
			if (commit)
			{
				record->upper->inserted += record->inserted;
				record->upper->updated += record->updated;
			}
			record->entry->top = record->upper;
			pfree(record);
		}
		else
		{
			record->level = ending - 1;
			enlist(record);
		}
		record = next;
	}
}

static void
end_transaction(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
	{
		entries = NULL;
		levels = NULL;
	}
}

static Entry *
find_entry(Oid relation)
{
	static bool registered = false;
	Entry	   *entry;
	bool		found;

	if (!registered)
	{
		RegisterXactCallback(end_transaction, NULL);
		RegisterSubXactCallback(end_subtransaction, NULL);
		registered = true;
	}
	if (entries == NULL)
	{
		HASHCTL		control = {
			.keysize = sizeof(Oid),
			.entrysize = sizeof(Entry),
			.hcxt = TopTransactionContext,
		};

		entries = hash_create("dpsql changes", 64, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	entry = hash_search(entries, &relation, HASH_ENTER, &found);
	if (!found)
		entry->top = NULL;
	return entry;
}

/* What the transaction has done to a relation, without what was rolled back. */
static void
count_live(Oid relation, int64 *inserted, int64 *updated)
{
	PgStat_EntryRef *reference = pgstat_fetch_pending_entry(PGSTAT_KIND_RELATION, MyDatabaseId,
															relation);
	PgStat_TableXactStatus *level;

	*inserted = *updated = 0;
	if (reference == NULL || reference->pending == NULL)
		return;
	for (level = ((PgStat_TableStatus *) reference->pending)->trans; level; level = level->upper)
	{
		*inserted += level->tuples_inserted;
		*updated += level->tuples_updated;
	}
}

static void
append_row(Oid relation, int64 inserted, int64 updated, bool uncounted)
{
	Datum		values[4] = {ObjectIdGetDatum(relation), Int64GetDatum(inserted),
	Int64GetDatum(updated), BoolGetDatum(uncounted)};

	if (append_plan == NULL)
	{
		Oid			types[4] = {OIDOID, INT8OID, INT8OID, BOOLOID};

		append_plan = SPI_prepare("insert into dp.change (relation, inserted, updated, uncounted)"
								  " values ($1, $2, $3, $4)", 4, types);
		if (append_plan == NULL || SPI_keepplan(append_plan) != 0)
			elog(ERROR, "a statement on dp.change cannot be prepared");
	}
	if (SPI_execute_plan(append_plan, values, NULL, false, 0) != SPI_OK_INSERT)
		elog(ERROR, "dp.change cannot be written");
}

/* Append what was not appended yet of one relation, without its children. */
static void
append_counts(Oid relation)
{
	Entry	   *entry;
	Record	   *record;
	int64		inserted;
	int64		updated;

	count_live(relation, &inserted, &updated);
	if (inserted == 0 && updated == 0)
		return;
	entry = find_entry(relation);
	for (record = entry->top; record; record = record->upper)
	{
		inserted -= record->inserted;
		updated -= record->updated;
	}
	/* TRUNCATE puts the server's counters back; it has appended that nothing counts */
	inserted = Max(inserted, 0);
	updated = Max(updated, 0);
	if (inserted == 0 && updated == 0)
		return;
	append_row(relation, inserted, updated, false);
	record = entry->top;
	if (record == NULL || record->level < GetCurrentTransactionNestLevel())
	{
		record = MemoryContextAllocZero(TopTransactionContext, sizeof(Record));
		record->entry = entry;
		record->level = GetCurrentTransactionNestLevel();
		record->upper = entry->top;
		entry->top = record;
		enlist(record);
	}
	record->inserted += inserted;
	record->updated += updated;
}

/* A statement on a relation changes rows of its partitions and children. */
static void
append_all(Relation relation)
{
	if (relation->rd_rel->relkind == RELKIND_PARTITIONED_TABLE)
	{
		PartitionDesc parts = RelationGetPartitionDesc(relation, false);

		for (int i = 0; i < parts->nparts; i++)
		{
			if (parts->is_leaf[i])
				append_counts(parts->oids[i]);
			else
			{
				Relation	part = table_open(parts->oids[i], AccessShareLock);

				append_all(part);
				table_close(part, NoLock);
			}
		}
	}
	else if (relation->rd_rel->relhassubclass)
	{
		ListCell   *cell;

		foreach(cell, find_all_inheritors(RelationGetRelid(relation), AccessShareLock, NULL))
			append_counts(lfirst_oid(cell));
	}
	else
		append_counts(RelationGetRelid(relation));
}

/* The columns of the primary key, as a row of the transition table; NULL if there is none. */
static char *
key_of_old_row(Relation relation)
{
	List	   *indexes = RelationGetIndexList(relation);
	ListCell   *cell;
	StringInfoData text;
	bool		found = false;

	initStringInfo(&text);
	foreach(cell, indexes)
	{
		HeapTuple	tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(lfirst_oid(cell)));
		Form_pg_index index;

		if (!HeapTupleIsValid(tuple))
			elog(ERROR, "cache lookup failed for index %u", lfirst_oid(cell));
		index = (Form_pg_index) GETSTRUCT(tuple);
		if (index->indisprimary && index->indimmediate && index->indisvalid)
		{
			found = true;
			for (int i = 0; i < index->indnkeyatts; i++)
				appendStringInfo(&text, "%so.%s", i ? ", " : "ROW(",
								 quote_identifier(get_attname(RelationGetRelid(relation),
															  index->indkey.values[i], false)));
			appendStringInfoString(&text, ")::text");
		}
		ReleaseSysCache(tuple);
	}
	list_free(indexes);
	return found ? text.data : NULL;
}

static void
log_keys(TriggerData *data)
{
	char	   *key = key_of_old_row(data->tg_relation);
	Oid			types[1] = {OIDOID};
	Datum		values[1] = {ObjectIdGetDatum(RelationGetRelid(data->tg_relation))};

	if (key == NULL)
		return;
	if (SPI_register_trigger_data(data) < 0)
		elog(ERROR, "the transition table cannot be read");
	if (SPI_execute_with_args(psprintf("insert into dp.changed_key (relation, key)"
									   " select $1, %s from %s as o", key,
									   quote_identifier(data->tg_trigger->tgoldtable)),
							  1, types, values, NULL, false, 0) != SPI_OK_INSERT)
		elog(ERROR, "dp.changed_key cannot be written");
}

/* dp.count_inserts(), dp.count_updates() */
Datum
dpsql_count_changes(PG_FUNCTION_ARGS)
{
	TriggerData *data = (TriggerData *) fcinfo->context;

	if (!CALLED_AS_TRIGGER(fcinfo) || TRIGGER_FIRED_FOR_ROW(data->tg_event) ||
		!TRIGGER_FIRED_AFTER(data->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_DPSQL_PARAMETER),
				 errmsg("only an AFTER STATEMENT trigger may call this function"),
				 errhint("SELECT dp.collect_statistics('<relation>') makes the triggers.")));
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	if (TRIGGER_FIRED_BY_TRUNCATE(data->tg_event) || !is_counting())
		append_row(RelationGetRelid(data->tg_relation), 0, 0, true);
	else
		append_all(data->tg_relation);
	if (data->tg_oldtable)
		log_keys(data);
	SPI_finish();
	return PointerGetDatum(NULL);
}

/*
 * dp.changed_here(relations oid[]): whoever writes a relation holds this lock to
 * the end of the transaction, also while the server does not count for us.
 */
Datum
dpsql_changed_here(PG_FUNCTION_ARGS)
{
	Datum	   *oids;
	bool	   *nulls;
	int			count;

	deconstruct_array(PG_GETARG_ARRAYTYPE_P(0), OIDOID, sizeof(Oid), true, TYPALIGN_INT,
					  &oids, &nulls, &count);
	for (int i = 0; i < count; i++)
	{
		LOCKTAG		tag;

		if (nulls[i])
			continue;
		SET_LOCKTAG_RELATION(tag, MyDatabaseId, DatumGetObjectId(oids[i]));
		if (holds_lock(&tag, RowExclusiveLock))
			PG_RETURN_BOOL(true);
	}
	PG_RETURN_BOOL(false);
}
