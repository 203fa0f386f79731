/*
 * dead_rows.c
 *		Keeps a service session from removing dead rows of what others can read.
 *
 * PostgreSQL prunes a page, that is, removes the dead rows on it, when a session
 * reads the page and few bytes of it are free.  New rows then take their places.
 * A question reads a page of a public relation because protected rows join the
 * rows there.  If the session pruned it, the places of rows that are written
 * later would tell which pages the question read: every reader of the relation
 * sees places, in ctid and in the order of a scan.
 *
 * A page is pruned only while a single pin is on it.  So the session pins every
 * page that has dead rows before it reads protected rows, and reads with a
 * second pin.  A row that dies after that is seen by the snapshot of the
 * transaction that reads, so that nobody can remove it before its end.
 *
 * An index scan marks entries of dead rows as well.  Later entries take their
 * places, or else split the page, and EXPLAIN estimates by the number of pages.
 * So index scans of the session report no dead row to the access method.
 */
#include "postgres.h"

#include "access/amapi.h"
#include "access/genam.h"
#include "access/heapam.h"
#include "access/relation.h"
#include "access/relscan.h"
#include "access/table.h"
#include "access/transam.h"
#include "access/visibilitymap.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_enum.h"
#include "catalog/pg_inherits.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/bitmapset.h"
#include "port/atomics.h"
#include "storage/bufmgr.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/resowner.h"

#include "compat.h"
#include "dpsql.h"
#include "service.h"

PG_FUNCTION_INFO_V1(dpsql_keep_dead_rows);

/* So many of the shared buffers are kept pinned by one session at most, and by all sessions together. */
#define MOST_PINNED (NBuffers / 8)
#define MOST_PINNED_TOGETHER (NBuffers / 4)

/* How many pins all sessions keep; NULL where the library was not preloaded. */
static pg_atomic_uint32 *pinned_together = NULL;

/* An index access method that the session uses, and its function that gives the next row. */
typedef struct
{
	Oid			handler;
	amgettuple_function next;
} Method;

static Method methods[32];
static int	method_count = 0;

/* Both until the transaction ends, in its memory.  An open index keeps its replaced method. */
static List *open_indexes = NIL;
static List *pinned = NIL;

/* Keep the pin of a buffer until the transaction ends; false if there are too many. */
static bool
keep_pin(Buffer buffer)
{
	ResourceOwner owner = CurrentResourceOwner;
	MemoryContext context;

	if (list_length(pinned) >= MOST_PINNED)
		return false;
	if (pinned_together &&
		pg_atomic_add_fetch_u32(pinned_together, 1) > MOST_PINNED_TOGETHER)
	{
		pg_atomic_sub_fetch_u32(pinned_together, 1);
		return false;
	}
	context = MemoryContextSwitchTo(TopTransactionContext);
	pinned = lappend_int(pinned, buffer);
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = TopTransactionResourceOwner;
	IncrBufferRefCount(buffer);
	CurrentResourceOwner = owner;
	return true;
}

/*
 * Pins and indexes are released before a commit, which warns of those that are
 * left; an abort releases them itself.
 */
static void
release_kept(XactEvent event, void *arg)
{
	ResourceOwner owner = CurrentResourceOwner;

	if (event == XACT_EVENT_PRE_COMMIT || event == XACT_EVENT_PRE_PREPARE)
	{
		ListCell   *cell;

		CurrentResourceOwner = TopTransactionResourceOwner;
		foreach(cell, pinned)
			ReleaseBuffer(lfirst_int(cell));
		foreach(cell, open_indexes)
			relation_close((Relation) lfirst(cell), NoLock);
		CurrentResourceOwner = owner;
	}
	else if (event != XACT_EVENT_ABORT)
		return;
	if (pinned_together)
		pg_atomic_sub_fetch_u32(pinned_together, list_length(pinned));
	pinned = NIL;
	open_indexes = NIL;
}

static Size
area_size(void)
{
	return sizeof(pg_atomic_uint32);
}

static void
start(void *memory, bool found)
{
	pinned_together = memory;
	if (!found)
		pg_atomic_init_u32(pinned_together, 0);
}

void
dead_rows_init(void)
{
	if (process_shared_preload_libraries_in_progress)
		share((SharedArea) {"dpsql pins", area_size, start});
	RegisterXactCallback(release_kept, NULL);
}

/* An access method's function that gives the next row, without the report that the row before is dead. */
static bool
next_without_marking(IndexScanDesc scan, ScanDirection direction)
{
	for (int i = 0; i < method_count; i++)
	{
		if (methods[i].handler == scan->indexRelation->rd_amhandler)
		{
			scan->kill_prior_tuple = false;
			return methods[i].next(scan, direction);
		}
	}
	elog(ERROR, "no access method of index %u", RelationGetRelid(scan->indexRelation));
}

/* Replace that function in the session's copy of an index's access method. */
static void
keep_entries(Relation index)
{
	IndexAmRoutine *method = (IndexAmRoutine *) index->rd_indam;
	int			known = 0;

	if (method->amgettuple == NULL || method->amgettuple == next_without_marking)
		return;
	while (known < method_count && methods[known].handler != index->rd_amhandler)
		known++;
	if (known == lengthof(methods))
		elog(ERROR, "more than %d index access methods", known);
	methods[known] = (Method) {index->rd_amhandler, method->amgettuple};
	method_count = Max(method_count, known + 1);
	method->amgettuple = next_without_marking;
}

static void
keep_entries_of_indexes(Relation relation)
{
	ResourceOwner owner = CurrentResourceOwner;
	MemoryContext context = MemoryContextSwitchTo(TopTransactionContext);
	ListCell   *cell;

	CurrentResourceOwner = TopTransactionResourceOwner;
	foreach(cell, RelationGetIndexList(relation))
	{
		Relation	index = index_open(lfirst_oid(cell), AccessShareLock);

		open_indexes = lappend(open_indexes, index);
		keep_entries(index);
	}
	CurrentResourceOwner = owner;
	MemoryContextSwitchTo(context);
}

static bool
has_dead_rows(Buffer buffer)
{
	return TransactionIdIsValid(((PageHeader) BufferGetPage(buffer))->pd_prune_xid);
}

/*
 * Remove what can be removed of the dead rows of a page.  PostgreSQL leaves them
 * on pages with more room than the fill factor asks for, and VACUUM may not come
 * for long: with a low fill factor hardly any page has that.
 */
static void
prune_page(Relation relation, Buffer buffer)
{
	bytea	   *options = relation->rd_options;
	StdRdOptions eager = {0};

	if (options != NULL)
		eager = *(StdRdOptions *) options;
	eager.fillfactor = HEAP_MIN_FILLFACTOR;
	relation->rd_options = (bytea *) &eager;
	PG_TRY();
	{
		heap_page_prune_opt(relation, buffer);
	}
	PG_FINALLY();
	{
		relation->rd_options = options;
	}
	PG_END_TRY();
}

/* Remove what can be removed of the dead rows of a page, and pin the page if it keeps some; false if too many are pinned. */
static bool
keep_page(Relation relation, BlockNumber block, BufferAccessStrategy strategy)
{
	Buffer		buffer = ReadBufferExtended(relation, MAIN_FORKNUM, block, RBM_NORMAL, strategy);
	bool		kept = true;

	if (has_dead_rows(buffer))
	{
		prune_page(relation, buffer);
		if (has_dead_rows(buffer))
			kept = keep_pin(buffer);
	}
	ReleaseBuffer(buffer);
	return kept;
}

/* The same for all pages of a relation and of its TOAST table. */
static bool
keep_dead_rows(Oid oid)
{
	Relation	relation = try_relation_open(oid, AccessShareLock);
	BufferAccessStrategy strategy;
	BlockNumber blocks;
	Oid			toast;
	Buffer		map = InvalidBuffer;
	bool		kept = true;

	if (relation == NULL)
		return true;
	if (!RELKIND_HAS_TABLE_AM(relation->rd_rel->relkind) ||
		relation->rd_tableam != GetHeapamTableAmRoutine())
	{
		relation_close(relation, NoLock);
		return true;
	}
	keep_entries_of_indexes(relation);
	strategy = GetAccessStrategy(BAS_BULKREAD);
	blocks = RelationGetNumberOfBlocks(relation);
	for (BlockNumber block = 0; kept && block < blocks; block++)
	{
		CHECK_FOR_INTERRUPTS();
		if (!VM_ALL_VISIBLE(relation, block, &map))
			kept = keep_page(relation, block, strategy);
	}
	if (BufferIsValid(map))
		ReleaseBuffer(map);
	FreeAccessStrategy(strategy);
	toast = relation->rd_rel->reltoastrelid;
	relation_close(relation, NoLock);
	return kept && (!OidIsValid(toast) || keep_dead_rows(toast));
}

/* The same for the pages of a catalog to which an index leads from a key, also by entries of rows that are gone. */
static bool
keep_dead_entries(Oid catalog, Oid index, AttrNumber column, Oid key)
{
	Relation	relation = table_open(catalog, AccessShareLock);
	ScanKeyData wanted;
	SysScanDesc scan;
	ItemPointer place;
	Bitmapset  *blocks = NULL;
	int			block = -1;
	bool		kept = true;

	keep_entries_of_indexes(relation);
	ScanKeyInit(&wanted, column, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(key));
	scan = systable_beginscan(relation, index, true, NULL, 1, &wanted);
	if (scan->iscan == NULL)
		elog(ERROR, "indexes of catalogs are not in use");
	while ((place = index_getnext_tid(scan->iscan, ForwardScanDirection)) != NULL)
		blocks = bms_add_member(blocks, ItemPointerGetBlockNumber(place));
	systable_endscan(scan);
	while (kept && (block = bms_next_member(blocks, block)) >= 0)
		kept = keep_page(relation, block, NULL);
	bms_free(blocks);
	table_close(relation, NoLock);
	return kept;
}

/*
 * The same for what the executor looks up in catalogs when a value of a relation
 * arrives: labels of enums, collations.  Other rows of these pages are those of
 * whoever may make a type or a collation, temporary ones included; on the last
 * pages of PostgreSQL's own as well.
 */
static bool
keep_dead_neighbours(Oid oid)
{
	Relation	relation = try_relation_open(oid, AccessShareLock);
	bool		kept = true;

	if (relation == NULL)
		return true;
	for (int i = 0; kept && i < RelationGetDescr(relation)->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(RelationGetDescr(relation), i);
		Oid			type;
		Oid			element;

		if (column->attisdropped)
			continue;
		type = getBaseType(column->atttypid);
		element = get_element_type(type);
		if (OidIsValid(element))
			type = getBaseType(element);
		if (type_is_enum(type))
			kept = keep_dead_entries(EnumRelationId, EnumTypIdLabelIndexId, Anum_pg_enum_enumtypid, type);
		if (kept && OidIsValid(column->attcollation))
			kept = keep_dead_entries(CollationRelationId, CollationOidIndexId,
									 Anum_pg_collation_oid, column->attcollation);
	}
	relation_close(relation, NoLock);
	return kept;
}

/*
 * Up to PostgreSQL 16 a server can remove rows that an old snapshot still shows,
 * and fail whoever reads their pages: which pages a question read would be seen.
 */
static void
require_old_rows(void)
{
	if (compat_removes_old_rows())
		ereport(ERROR,
				(errcode(ERRCODE_DPSQL_UNSUPPORTED),
				 errmsg("a question cannot be asked while old_snapshot_threshold is set"),
				 errdetail("Questions fail there when rows that they read are removed."),
				 errhint("Ask a superuser for ALTER SYSTEM RESET old_snapshot_threshold and a restart of the server.")));
}

/*
 * dp.keep_dead_rows(shared oid[], read oid[]): until the transaction ends, this
 * session removes no dead row of the shared relations, their partitions and
 * children, and of catalogs that values of the relations that are read can need,
 * nor the index entry of one; see also hold_vacuum.  NULL, or
 * the relation that leads to more pages with dead rows than can be pinned.  The
 * transaction must read with one snapshot.
 */
Datum
dpsql_keep_dead_rows(PG_FUNCTION_ARGS)
{
	int			shared_count;
	int			read_count;
	Oid		   *shared = objects_of(PG_GETARG_DATUM(0), &shared_count);
	Oid		   *read = objects_of(PG_GETARG_DATUM(1), &read_count);
	List	   *others = NIL;	/* what is read and not shared */

	if (RecoveryInProgress())	/* a standby prunes nothing */
		PG_RETURN_NULL();
	if (!IsolationUsesXactSnapshot())
	{
		if (is_serving())
			elog(ERROR, "dp.keep_dead_rows needs a transaction that reads with one snapshot");
		PG_RETURN_NULL();		/* an owner reads what is the owner's, as any statement does */
	}
	require_old_rows();
	for (int i = 0; i < read_count; i++)
	{
		if (!keep_dead_neighbours(read[i]))
			PG_RETURN_OID(read[i]);
		others = lappend_oid(others, read[i]);
	}
	for (int i = 0; i < shared_count; i++)
		others = list_delete_oid(others, shared[i]);
	for (int i = 0; i < shared_count; i++)
	{
		ListCell   *cell;

		foreach(cell, find_all_inheritors(shared[i], AccessShareLock, NULL))
		{
			Relation	relation = relation_open(lfirst_oid(cell), NoLock);

			hold_vacuum(relation, others);
			relation_close(relation, NoLock);
			if (!keep_dead_rows(lfirst_oid(cell)))
				PG_RETURN_OID(lfirst_oid(cell));
		}
	}
	PG_RETURN_NULL();
}
