/*
 * compat.h
 *		Every difference between the supported majors (15 to 18) is here.
 *
 * The project's tests run on 15, 17 and 18; the code for 16 is only
 * compiled against its headers.
 */
#ifndef DPSQL_COMPAT_H
#define DPSQL_COMPAT_H

#include "postgres.h"

#include "access/sysattr.h"
#include "catalog/pg_class.h"
#include "catalog/pg_database.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/bitmapset.h"
#include "nodes/parsenodes.h"
#include "nodes/pathnodes.h"
#include "nodes/plannodes.h"
#include "nodes/primnodes.h"
#include "optimizer/optimizer.h"
#include "parser/parse_relation.h"
#if PG_VERSION_NUM >= 170000
#include "storage/procnumber.h"
#else
#include "postmaster/autovacuum.h"
#include "storage/backendid.h"
#endif
#include "storage/lock.h"
#include "utils/acl.h"
#include "utils/snapmgr.h"
#if PG_VERSION_NUM >= 160000
#include "varatt.h"				/* 15 has these macros in postgres.h */
#endif

#if PG_VERSION_NUM < 150000 || PG_VERSION_NUM >= 190000
#error "dpsql supports PostgreSQL 15 to 18"
#endif

/*
 * Enter a relation that is only remembered, never read, in a range table: it
 * asks for no permission.  From 16 on permissions live in a list beside it.
 */
static inline void
compat_ask_no_permission(Query *query, RangeTblEntry *rte)
{
#if PG_VERSION_NUM >= 160000
	rte->perminfoindex = 0;
	addRTEPermissionInfo(&query->rteperminfos, rte)->requiredPerms = 0;
#else
	rte->requiredPerms = 0;
	rte->checkAsUser = InvalidOid;
#endif
}

/* The same for a relation that is not read either, but whose reader must be allowed to read all of it. */
static inline void
compat_ask_to_read(Query *query, RangeTblEntry *rte)
{
	Bitmapset  *whole_row = bms_make_singleton(0 - FirstLowInvalidHeapAttributeNumber);
#if PG_VERSION_NUM >= 160000
	RTEPermissionInfo *asked;

	rte->perminfoindex = 0;
	asked = addRTEPermissionInfo(&query->rteperminfos, rte);
#else
	RangeTblEntry *asked = rte;
#endif
	asked->requiredPerms = ACL_SELECT;
	asked->selectedCols = whole_row;
	asked->checkAsUser = InvalidOid;
}

/* What a planned statement asks permission for; from 16 on in a list of its own. */
static inline List *
compat_permissions(PlannedStmt *statement)
{
#if PG_VERSION_NUM >= 160000
	return statement->permInfos;
#else
	return statement->rtable;
#endif
}

/* What a relation of a query asks permission for, or NULL: parts of another and the like ask for none. */
static inline void *
compat_permission(Query *query, RangeTblEntry *rte)
{
#if PG_VERSION_NUM >= 160000
	return rte->perminfoindex == 0 ? NULL : getRTEPermissionInfo(query->rteperminfos, rte);
#else
	return rte->requiredPerms == 0 ? NULL : rte;
#endif
}

/* Is it given?  If not, and if told to, raise PostgreSQL's own error. */
static inline bool
compat_check_permission(void *entry, bool raise)
{
#if PG_VERSION_NUM >= 160000
	RTEPermissionInfo *asked = (RTEPermissionInfo *) entry;
	RangeTblEntry *rte = makeNode(RangeTblEntry);

	rte->rtekind = RTE_RELATION;
	rte->relid = asked->relid;
	rte->perminfoindex = 1;
	return ExecCheckPermissions(list_make1(rte), list_make1(asked), raise);
#else
	return ExecCheckRTPerms(list_make1(entry), raise);
#endif
}

/* The relation that one of them is about, if the current user itself reads it and does nothing else. */
static inline Oid
compat_only_read(void *entry)
{
#if PG_VERSION_NUM >= 160000
	RTEPermissionInfo *asked = (RTEPermissionInfo *) entry;
#else
	RangeTblEntry *asked = (RangeTblEntry *) entry;

	if (asked->rtekind != RTE_RELATION)
		return InvalidOid;
#endif
	if (asked->requiredPerms != ACL_SELECT ||
		(OidIsValid(asked->checkAsUser) && asked->checkAsUser != GetUserId()))
		return InvalidOid;
	return asked->relid;
}

/* The role that a relation of a query is read as. */
static inline Oid
compat_reads_as(Query *query, RangeTblEntry *rte)
{
#if PG_VERSION_NUM >= 160000
	Oid			role = rte->perminfoindex == 0 ? InvalidOid
		: getRTEPermissionInfo(query->rteperminfos, rte)->checkAsUser;
#else
	Oid			role = rte->checkAsUser;
#endif
	return OidIsValid(role) ? role : GetUserId();
}

/* A query of one's own reads a column no more, so that nobody asks for the privilege. */
static inline void
compat_reads_no_more(Query *query, RangeTblEntry *rte, AttrNumber column)
{
	int			member = column - FirstLowInvalidHeapAttributeNumber;

#if PG_VERSION_NUM >= 160000
	if (rte->perminfoindex != 0)
	{
		RTEPermissionInfo *asked = getRTEPermissionInfo(query->rteperminfos, rte);

		asked->selectedCols = bms_del_member(bms_copy(asked->selectedCols), member);
	}
#else
	rte->selectedCols = bms_del_member(bms_copy(rte->selectedCols), member);
#endif
}

/* Depth of the query that an expression of a later major refers to, or -1. */
static inline int
compat_levels_up(Node *node)
{
#if PG_VERSION_NUM >= 180000
	if (IsA(node, ReturningExpr))
		return ((ReturningExpr *) node)->retlevelsup;
#endif
	return -1;
}

/* An expression of the query's targets as it stands before grouping, for which 18 has a column instead. */
static inline Node *
compat_before_grouping(Query *query, Node *expression)
{
#if PG_VERSION_NUM >= 180000
	if (query->hasGroupRTE)
		return flatten_group_exprs(NULL, query, expression);
#endif
	return expression;
}

/* May the role call the function? */
static inline bool
compat_may_call(Oid function, Oid role)
{
#if PG_VERSION_NUM >= 160000
	return object_aclcheck(ProcedureRelationId, function, role, ACL_EXECUTE) == ACLCHECK_OK;
#else
	return pg_proc_aclcheck(function, role, ACL_EXECUTE) == ACLCHECK_OK;
#endif
}

/* Does the role own the relation, or may it do what the owner does? */
static inline bool
compat_owns(Oid relation, Oid role)
{
#if PG_VERSION_NUM >= 160000
	return object_ownercheck(RelationRelationId, relation, role);
#else
	return pg_class_ownercheck(relation, role);
#endif
}

/* The same of a database. */
static inline bool
compat_owns_database(Oid database, Oid role)
{
#if PG_VERSION_NUM >= 160000
	return object_ownercheck(DatabaseRelationId, database, role);
#else
	return pg_database_ownercheck(database, role);
#endif
}

/* The same of a schema. */
static inline bool
compat_owns_schema(Oid schema, Oid role)
{
#if PG_VERSION_NUM >= 160000
	return object_ownercheck(NamespaceRelationId, schema, role);
#else
	return pg_namespace_ownercheck(schema, role);
#endif
}

/* The same of an extension. */
static inline bool
compat_owns_extension(Oid extension, Oid role)
{
#if PG_VERSION_NUM >= 160000
	return object_ownercheck(ExtensionRelationId, extension, role);
#else
	return pg_extension_ownercheck(extension, role);
#endif
}

/* May the role use the schema? */
static inline bool
compat_may_use(Oid schema, Oid role)
{
#if PG_VERSION_NUM >= 160000
	return object_aclcheck(NamespaceRelationId, schema, role, ACL_USAGE) == ACLCHECK_OK;
#else
	return pg_namespace_aclcheck(schema, role, ACL_USAGE) == ACLCHECK_OK;
#endif
}

/* Name of an expression that only later majors have, or NULL. */
static inline const char *
compat_construct(Node *node)
{
#if PG_VERSION_NUM >= 160000
	if (IsA(node, JsonConstructorExpr))
		return "JsonConstructorExpr";
	if (IsA(node, JsonIsPredicate))
		return "JsonIsPredicate";
#endif
#if PG_VERSION_NUM >= 170000
	if (IsA(node, JsonExpr))
		return "JsonExpr";
	if (IsA(node, MergeSupportFunc))
		return "MergeSupportFunc";
#endif
#if PG_VERSION_NUM >= 180000
	if (IsA(node, ReturningExpr))
		return "ReturningExpr";
#endif
	return NULL;
}

/* 15 keeps SQLValueFunction for the user's names as well, 16 has functions. */
static inline const char *
compat_sqlvalue(SQLValueFunction *value)
{
	switch (value->op)
	{
		case SVFOP_CURRENT_DATE:
			return "current_date";
		case SVFOP_CURRENT_TIME:
		case SVFOP_CURRENT_TIME_N:
			return "current_time";
		case SVFOP_CURRENT_TIMESTAMP:
		case SVFOP_CURRENT_TIMESTAMP_N:
			return "current_timestamp";
		case SVFOP_LOCALTIME:
		case SVFOP_LOCALTIME_N:
			return "localtime";
		case SVFOP_LOCALTIMESTAMP:
		case SVFOP_LOCALTIMESTAMP_N:
			return "localtimestamp";
		case SVFOP_CURRENT_ROLE:
			return "current_role";
		case SVFOP_CURRENT_USER:
			return "current_user";
		case SVFOP_USER:
			return "user";
		case SVFOP_SESSION_USER:
			return "session_user";
		case SVFOP_CURRENT_CATALOG:
			return "current_catalog";
		case SVFOP_CURRENT_SCHEMA:
			return "current_schema";
	}
	return "unknown";
}

/* Does a part of ALTER TABLE add a constraint that was not there?  15 has a name for it with all children. */
static inline bool
compat_adds_constraint(AlterTableType part)
{
#if PG_VERSION_NUM < 160000
	if (part == AT_AddConstraintRecurse)
		return true;
#endif
	return part == AT_AddConstraint;
}

/* 17 can ask for stronger locks as well. */
static inline bool
holds_lock(const LOCKTAG *tag, LOCKMODE mode)
{
#if PG_VERSION_NUM >= 170000
	return LockHeldByMe(tag, mode, false);
#else
	return LockHeldByMe(tag, mode);
#endif
}

/* Hide NOT NULL of all columns from the planner; 15 and 16 do not use it. */
static inline void
compat_forget_not_null(RelOptInfo *relation)
{
#if PG_VERSION_NUM >= 170000
	relation->notnullattnums = NULL;
#endif
}

/* This backend's place among MaxBackends, from 0; 17 counts from there itself. */
static inline int
compat_backend_place(void)
{
#if PG_VERSION_NUM >= 170000
	return MyProcNumber;
#else
	return MyBackendId - 1;
#endif
}

/* JSON_TABLE, whose analysis expects constants in some places; since PostgreSQL 17 */
static inline bool
compat_is_json_table(Node *node)
{
#if PG_VERSION_NUM >= 170000
	return IsA(node, JsonTable);
#else
	return false;
#endif
}

/* The privilege to run VACUUM on a relation of somebody else; before 17 there is none. */
#if PG_VERSION_NUM >= 170000
#define COMPAT_ACL_MAINTAIN ACL_MAINTAIN
#else
#define COMPAT_ACL_MAINTAIN 0
#endif

/* Whether this process is a worker of autovacuum. */
static inline bool
compat_is_autovacuum(void)
{
#if PG_VERSION_NUM >= 170000
	return AmAutoVacuumWorkerProcess();
#else
	return IsAutoVacuumWorkerProcess();
#endif
}

/*
 * Whether old_snapshot_threshold lets the server remove rows that a snapshot still
 * shows.  The setting is gone from 17 on.
 */
static inline bool
compat_removes_old_rows(void)
{
#if PG_VERSION_NUM >= 170000
	return false;
#else
	return old_snapshot_threshold >= 0;
#endif
}

#endif							/* DPSQL_COMPAT_H */
