/*
 * locks.c
 *		Which locks a call takes, when it takes them, and when it releases them.
 *
 * PostgreSQL keeps the locks of analysis and reading until the transaction
 * ends.  An analyst can leave a transaction open for ever, and an owner who
 * wants to alter the relation would wait that long.  So calls that only read
 * run in a subtransaction that is always rolled back: the rollback releases the
 * locks that were taken in it.  Until then they protect the relations and
 * declarations from changes.
 *
 * PostgreSQL takes some locks only when a row arrives: on the TOAST table of a
 * long value, and on the catalogs that an expression reads for its first value.
 * Other sessions could see in pg_locks whether a row exists, or fill the lock
 * table so that the question fails only if the row exists.  So all these locks
 * are taken before the first row is read, in parallel workers as well.
 *
 * A service session takes them before the charge and keeps them until the
 * question has ended.  The charge is a commit, which would release them: whoever
 * fills the lock table at that moment would make the question fail, or see by a
 * failure which further catalogs the rows made it read.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/parallel.h"
#include "access/relation.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_aggregate.h"
#include "catalog/pg_am.h"
#include "catalog/pg_amop.h"
#include "catalog/pg_amproc.h"
#include "catalog/pg_attrdef.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_auth_members.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_cast.h"
#include "catalog/pg_class.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_database.h"
#include "catalog/pg_db_role_setting.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_enum.h"
#include "catalog/pg_foreign_data_wrapper.h"
#include "catalog/pg_foreign_server.h"
#include "catalog/pg_foreign_table.h"
#include "catalog/pg_index.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_language.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_opclass.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_opfamily.h"
#include "catalog/pg_partitioned_table.h"
#include "catalog/pg_policy.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_range.h"
#include "catalog/pg_rewrite.h"
#include "catalog/pg_statistic.h"
#include "catalog/pg_statistic_ext.h"
#include "catalog/pg_statistic_ext_data.h"
#include "catalog/pg_subscription_rel.h"
#include "catalog/pg_tablespace.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "catalog/pg_user_mapping.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "storage/lmgr.h"
#include "utils/array.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/resowner.h"
#include "utils/syscache.h"

#include "dpsql.h"
#include "service.h"

PG_FUNCTION_INFO_V1(dpsql_lock_members);
PG_FUNCTION_INFO_V1(dpsql_lock_at_once);

/*
 * Catalogs that planning and executing statements may read, and functions that they call.  Rows
 * decide whether there is another statement: a count that does not fit into bigint is counted again.
 */
static const Oid catalogs[] = {
	AccessMethodOperatorRelationId, AccessMethodProcedureRelationId, AccessMethodRelationId,
	AggregateRelationId, AttrDefaultRelationId, AttributeRelationId, AuthIdRelationId,
	AuthMemRelationId, CastRelationId, CollationRelationId, ConstraintRelationId,
	DatabaseRelationId, DbRoleSettingRelationId, DependRelationId, EnumRelationId,
	ForeignDataWrapperRelationId, ForeignServerRelationId,
	ForeignTableRelationId, IndexRelationId, InheritsRelationId, LanguageRelationId,
	NamespaceRelationId, OperatorClassRelationId, OperatorFamilyRelationId, OperatorRelationId,
	PartitionedRelationId, PolicyRelationId, ProcedureRelationId, RangeRelationId,
	RelationRelationId, RewriteRelationId, StatisticExtDataRelationId, StatisticExtRelationId,
	StatisticRelationId, SubscriptionRelRelationId, TableSpaceRelationId, TriggerRelationId,
	TypeRelationId, UserMappingRelationId
};

/* Views and tables that the library's own statements read between the charge and the answer. */
static const char *const system_views[] = {"pg_roles", "pg_stats", "pg_user_mappings"};
static const char *const own_tables[] = {
	"change", "changed_key", "column_domain", "kept_query", "ledger_identity", "ledger_incarnation",
	"measured_relation", "measurement", "numbered_column", "policy", "principal", "root", "shards",
	"shown_relation", "sketch", "sketch_counter", "sketch_family", "statistic", "stored_release",
	"unit_link"
};

static bool kept_catalogs = false;

/* Relations whose locks a service session kept, from when it has those of all that it will read. */
static List *kept_relations = NIL;

static ExecutorStart_hook_type previous_start = NULL;

/* Keep the lock of an open relation until release_kept_locks. */
static void
keep_lock(Relation relation)
{
	if (is_serving())
		LockRelationIdForSession(&relation->rd_lockInfo.lockRelId, AccessShareLock);
}

/* Release the locks that a service session kept, in a transaction or after it. */
void
release_kept_locks(void)
{
	LockReleaseSession(DEFAULT_LOCKMETHOD);
	kept_catalogs = false;
	list_free(kept_relations);
	kept_relations = NIL;
}

/*
 * Whether a service session may read a relation: one that it has locked by its OID,
 * if it has locked by now all that its question reads.
 */
bool
may_be_read(Oid relation)
{
	return kept_relations == NIL || list_member_oid(kept_relations, relation);
}

/* Keep a relation, which is locked, as one that will be read. */
static void
keep_relation(Oid oid)
{
	Relation	relation;
	MemoryContext context;

	if (!is_serving())
		return;
	relation = relation_open(oid, NoLock);
	hold_catalogue(relation);
	relation_close(relation, NoLock);
	context = MemoryContextSwitchTo(TopMemoryContext);
	kept_relations = list_append_unique_oid(kept_relations, oid);
	MemoryContextSwitchTo(context);
}

/*
 * Lock a relation, its indexes, its TOAST table and the index of that; false if
 * the relation does not exist.
 */
static bool
lock_with_indexes(Oid oid)
{
	Relation	relation = try_relation_open(oid, AccessShareLock);
	List	   *indexes;
	ListCell   *index;
	Oid			toast;

	if (relation == NULL)
		return false;
	keep_lock(relation);
	indexes = relation->rd_rel->relhasindex ? RelationGetIndexList(relation) : NIL;
	foreach(index, indexes)
	{
		Relation	opened = index_open(lfirst_oid(index), AccessShareLock);

		keep_lock(opened);
		index_close(opened, NoLock);
	}
	list_free(indexes);
	toast = relation->rd_rel->reltoastrelid;
	relation_close(relation, NoLock);
	if (OidIsValid(toast))
		lock_with_indexes(toast);
	return true;
}

static void
lock_by_names(const char *const *names, int count, const char *schema)
{
	Oid			namespace = get_namespace_oid(schema, false);

	for (int i = 0; i < count; i++)
	{
		Oid			relation = get_relname_relid(names[i], namespace);

		if (OidIsValid(relation))
			lock_with_indexes(relation);
	}
}

static void
lock_catalogs(void)
{
	if (kept_catalogs)
		return;
	for (int i = 0; i < lengthof(catalogs); i++)
		lock_with_indexes(catalogs[i]);
	lock_by_names(system_views, lengthof(system_views), "pg_catalog");
	lock_by_names(own_tables, lengthof(own_tables), DPSQL_SCHEMA);
	kept_catalogs = is_serving();
}

/* ExecutorStart hook: a parallel worker takes its own locks, so it locks the same relations as the leader. */
static void
lock_before_rows(QueryDesc *query, int flags)
{
	if (IsParallelWorker() && executor_runs())
	{
		ListCell   *cell;

		foreach(cell, query->plannedstmt->rtable)
		{
			RangeTblEntry *rte = lfirst_node(RangeTblEntry, cell);

			if (rte->rtekind == RTE_RELATION)
				lock_with_indexes(rte->relid);
		}
		lock_catalogs();
	}
	if (previous_start)
		previous_start(query, flags);
	else
		standard_ExecutorStart(query, flags);
}

void
locks_init(void)
{
	previous_start = ExecutorStart_hook;
	ExecutorStart_hook = lock_before_rows;
}

/*
 * Call a function in a subtransaction that is rolled back, whether the function
 * succeeds or fails.  Its result is in the caller's memory context, so that it
 * survives the rollback.
 */
Datum
call_apart(Datum (*work) (FunctionCallInfo), FunctionCallInfo fcinfo)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	volatile Datum result = (Datum) 0;
	ErrorData  *volatile error = NULL;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		result = work(fcinfo);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
	}
	PG_END_TRY();
	RollbackAndReleaseCurrentSubTransaction();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	if (error)
		ReThrowError((ErrorData *) error);
	return result;
}

/* FunctionCallInvoke is a macro, of which call_apart could not take the address. */
Datum
invoke_function(FunctionCallInfo fcinfo)
{
	return FunctionCallInvoke(fcinfo);
}

/*
 * dp.lock_members(relations oid[], before_rows boolean): locks relations, their
 * partitions, children, indexes and TOAST tables.  If their rows will be read,
 * it locks the catalogs above, too.  Called before the charge, so that a
 * question that waits for a lock, or finds the lock table full, has not been
 * charged yet.  Relations that do not exist any more are skipped.
 *
 * Statements name relations by texts, and a name can come to mean another
 * relation: whoever owns a schema can rename it, and back again.  So a service
 * session reads no other relations from then on (executed.c).
 */
Datum
dpsql_lock_members(PG_FUNCTION_ARGS)
{
	int			count;
	Oid		   *oids = objects_of(PG_GETARG_DATUM(0), &count);
	bool		before_rows = PG_GETARG_BOOL(1);
	ListCell   *cell;

	for (int i = 0; i < count; i++)
	{
		if (!lock_with_indexes(oids[i]))
			continue;
		foreach(cell, find_all_inheritors(oids[i], AccessShareLock, NULL))
		{
			if (lfirst_oid(cell) != oids[i])
				lock_with_indexes(lfirst_oid(cell));
			if (before_rows)
				keep_relation(lfirst_oid(cell));
		}
	}
	if (before_rows)
		lock_catalogs();
	PG_RETURN_VOID();
}

/* dp.lock_at_once(relation oid): lock a relation without waiting; false if it is locked or does not exist */
Datum
dpsql_lock_at_once(PG_FUNCTION_ARGS)
{
	Oid			relation = PG_GETARG_OID(0);

	if (!ConditionalLockRelationOid(relation, AccessShareLock))
		PG_RETURN_BOOL(false);
	PG_RETURN_BOOL(SearchSysCacheExists1(RELOID, ObjectIdGetDatum(relation)));
}
