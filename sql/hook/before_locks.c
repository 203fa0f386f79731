/*
 * before_locks.c
 *		Refuse commands without permission before PostgreSQL locks what they name.
 *
 * Some commands of PostgreSQL lock a relation, some of them exclusively, before
 * they check who owns it.  An open transaction that has read the relation makes
 * such a command wait.  All later users of the relation queue behind the
 * command: questions, the ledger, the application.  So commands that PostgreSQL
 * would refuse are refused here, by the same error, without a lock.
 *
 * A permitted command may wait for another lock and then look the name up again.
 * The name is therefore qualified with its schema, so that it cannot come to mean
 * a relation of another schema meanwhile.
 *
 * Schemas are locked like relations: whoever makes a table in one waits.  A
 * database is locked by each login, so that a command that waits for a database
 * keeps everybody out of it; such a command can be typed in any other database.
 *
 * This extension is locked by functions of owners that make or drop views.
 * PostgreSQL locks any extension for whoever makes an object of his own depend on
 * it; here only its owner may.
 *
 * Relations and schemas are looked at only in databases with the extension.  What
 * is locked no more strongly than by a reader or a writer of rows is left to
 * PostgreSQL.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/catalog.h"
#include "catalog/index.h"
#include "catalog/namespace.h"
#include "catalog/objectaddress.h"
#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "commands/dbcommands.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/value.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "compat.h"
#include "dpsql.h"

static ProcessUtility_hook_type previous_utility = NULL;

/* What a command needs, and whether PostgreSQL refuses system catalogs before it looks at that. */
typedef enum
{
	AS_OWNER,
	AS_OWNER_NO_CATALOG,
	TRIGGER_NO_CATALOG,
	REFERENCES_NO_CATALOG,
} Needed;

static bool
is_index(Oid relation)
{
	char		kind = get_rel_relkind(relation);

	return kind == RELKIND_INDEX || kind == RELKIND_PARTITIONED_INDEX;
}

static bool
is_allowed(Oid relation, Needed needed)
{
	switch (needed)
	{
		case TRIGGER_NO_CATALOG:
			return pg_class_aclcheck(relation, GetUserId(), ACL_TRIGGER) == ACLCHECK_OK;
		case REFERENCES_NO_CATALOG:
			return pg_class_aclcheck(relation, GetUserId(), ACL_REFERENCES) == ACLCHECK_OK ||
				pg_attribute_aclcheck_all(relation, GetUserId(), ACL_REFERENCES,
										  ACLMASK_ANY) == ACLCHECK_OK;
		default:
			return compat_owns(relation, GetUserId());
	}
}

static void
refuse(Oid relation, Needed needed)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relation));
	Form_pg_class class;

	if (!HeapTupleIsValid(tuple))
		return;
	class = (Form_pg_class) GETSTRUCT(tuple);
	if (needed != AS_OWNER && is_index(relation))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("cannot open relation \"%s\"", NameStr(class->relname)),
				 errdetail_relkind_not_supported(class->relkind)));
	if (needed != AS_OWNER && !allowSystemTableMods && IsSystemClass(relation, class))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied: \"%s\" is a system catalog", NameStr(class->relname))));
	aclcheck_error(needed == AS_OWNER || needed == AS_OWNER_NO_CATALOG ?
				   ACLCHECK_NOT_OWNER : ACLCHECK_NO_PRIV,
				   get_relkind_objtype(class->relkind), NameStr(class->relname));
}

/* Give a name the schema in which it was found. */
static void
keep(RangeVar *name, Oid relation)
{
	if (name->schemaname == NULL)
		name->schemaname = get_namespace_name(get_rel_namespace(relation));
}

static void
check(RangeVar *name, Needed needed)
{
	Oid			relation = RangeVarGetRelid(name, NoLock, true);

	if (!OidIsValid(relation))
		return;
	if (!is_allowed(relation, needed))
		refuse(relation, needed);
	keep(name, relation);
}

/* A qualified name of a relation, or of one of its columns */
static void
check_object(ObjectType type, Node *object)
{
	List	   *names;

	switch (type)
	{
		case OBJECT_COLUMN:
			names = list_truncate(list_copy((List *) object), list_length((List *) object) - 1);
			break;
		case OBJECT_FOREIGN_TABLE:
		case OBJECT_INDEX:
		case OBJECT_MATVIEW:
		case OBJECT_SEQUENCE:
		case OBJECT_TABLE:
		case OBJECT_VIEW:
			names = (List *) object;
			break;
		default:
			return;
	}
	if (names != NIL)
		check(makeRangeVarFromNameList(names), AS_OWNER);
}

/*
 * Parents are looked at only where there will be a table.  One that is there
 * already stays there until the command has seen it.
 */
static void
check_parents(CreateStmt *statement)
{
	ListCell   *cell;

	if (statement->inhRelations == NIL ||
		(statement->if_not_exists &&
		 OidIsValid(RangeVarGetRelid(statement->relation, AccessShareLock, true))))
		return;
	foreach(cell, statement->inhRelations)
		check(lfirst_node(RangeVar, cell), AS_OWNER);
}

static void
check_foreign_key(Node *constraint)
{
	if (IsA(constraint, Constraint) && ((Constraint *) constraint)->contype == CONSTR_FOREIGN)
		check(((Constraint *) constraint)->pktable, REFERENCES_NO_CATALOG);
}

static bool
is_part(Oid relation, Oid whole)
{
	return OidIsValid(relation) && get_rel_relispartition(relation) &&
		get_partition_parent(relation, true) == whole;
}

/* Who owns the whole may let go of a part, or attach a part's index, that is another role's. */
static void
check_part(AlterTableCmd *command, Oid whole)
{
	RangeVar   *name = ((PartitionCmd *) command->def)->name;
	Oid			relation = RangeVarGetRelid(name, NoLock, true);

	if (!OidIsValid(relation))
		return;
	if (!is_allowed(relation, AS_OWNER))
	{
		if (command->subtype != AT_AttachPartition)
		{
			if (!is_part(relation, whole))
				ereport(ERROR,
						(errcode(ERRCODE_UNDEFINED_TABLE),
						 errmsg("relation \"%s\" is not a partition of relation \"%s\"",
								get_rel_name(relation), get_rel_name(whole))));
		}
		else if (!is_index(whole) || !is_index(relation))
			refuse(relation, AS_OWNER);
		else if (!is_part(IndexGetRelation(relation, true), IndexGetRelation(whole, true)))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
					 errmsg("cannot attach index \"%s\" as a partition of index \"%s\"",
							get_rel_name(relation), get_rel_name(whole)),
					 errdetail("Index \"%s\" is not an index on any partition of table \"%s\".",
							   get_rel_name(relation),
							   get_rel_name(IndexGetRelation(whole, true)))));
	}
	keep(name, relation);
}

/* The relation itself is locked once PostgreSQL has seen whose it is. */
static void
check_changes(AlterTableStmt *statement)
{
	Oid			altered = RangeVarGetRelid(statement->relation, NoLock, true);
	ListCell   *cell;
	ListCell   *constraint;

	if (!OidIsValid(altered))
		return;
	foreach(cell, statement->cmds)
	{
		AlterTableCmd *command = lfirst_node(AlterTableCmd, cell);

		switch (command->subtype)
		{
			case AT_AddConstraint:
				check_foreign_key(command->def);
				break;
			case AT_AddColumn:
				foreach(constraint, ((ColumnDef *) command->def)->constraints)
					check_foreign_key(lfirst(constraint));
				break;
			case AT_AddInherit:
				check((RangeVar *) command->def, AS_OWNER);
				break;
			case AT_AttachPartition:
			case AT_DetachPartition:
			case AT_DetachPartitionFinalize:
				check_part(command, altered);
				break;
			default:
				break;
		}
	}
}

static void
check_published(List *objects)
{
	ListCell   *cell;

	foreach(cell, objects)
	{
		PublicationObjSpec *object = lfirst_node(PublicationObjSpec, cell);

		if (object->pubobjtype == PUBLICATIONOBJ_TABLE && object->pubtable != NULL)
			check(object->pubtable->relation, AS_OWNER);
	}
}

/* DROP, RENAME or SET TABLESPACE of a database */
static void
check_database(const char *name)
{
	Oid			database = get_database_oid(name, true);

	if (OidIsValid(database) && !compat_owns_database(database, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_DATABASE, name);
}

static void
check_databases(Node *statement)
{
	ListCell   *cell;

	switch (nodeTag(statement))
	{
		case T_DropdbStmt:
			check_database(((DropdbStmt *) statement)->dbname);
			break;
		case T_RenameStmt:
			if (((RenameStmt *) statement)->renameType == OBJECT_DATABASE)
				check_database(((RenameStmt *) statement)->subname);
			break;
		case T_AlterDatabaseStmt:
			foreach(cell, ((AlterDatabaseStmt *) statement)->options)
			{
				if (strcmp(lfirst_node(DefElem, cell)->defname, "tablespace") == 0)
					check_database(((AlterDatabaseStmt *) statement)->dbname);
			}
			break;
		default:
			break;
	}
}

static void
check_schemas(List *names)
{
	ListCell   *cell;

	foreach(cell, names)
	{
		const char *name = strVal(lfirst(cell));
		Oid			schema = get_namespace_oid(name, true);

		if (OidIsValid(schema) && !compat_owns_schema(schema, GetUserId()))
			aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_SCHEMA, name);
	}
}

static void
check_extension(const char *name)
{
	Oid			extension = get_extension_oid(name, true);

	if (OidIsValid(extension) && strcmp(name, DPSQL_EXTENSION) == 0 &&
		!compat_owns_extension(extension, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_EXTENSION, name);
}

static void
check_extensions(List *names)
{
	ListCell   *cell;

	foreach(cell, names)
		check_extension(strVal(lfirst(cell)));
}

static void
check_all(Node *statement)
{
	ListCell   *cell;

	switch (nodeTag(statement))
	{
		case T_RuleStmt:
			check(((RuleStmt *) statement)->relation, AS_OWNER_NO_CATALOG);
			break;
		case T_CreateTrigStmt:
			check(((CreateTrigStmt *) statement)->relation, TRIGGER_NO_CATALOG);
			break;
		case T_CreateStmt:
		case T_CreateForeignTableStmt:
			check_parents((CreateStmt *) statement);
			break;
		case T_AlterTableStmt:
			check_changes((AlterTableStmt *) statement);
			break;
		case T_CreateStatsStmt:
			foreach(cell, ((CreateStatsStmt *) statement)->relations)
			{
				if (IsA(lfirst(cell), RangeVar))
					check(lfirst(cell), AS_OWNER);
			}
			break;
		case T_DropStmt:
			if (((DropStmt *) statement)->removeType == OBJECT_SCHEMA)
				check_schemas(((DropStmt *) statement)->objects);
			if (((DropStmt *) statement)->removeType == OBJECT_EXTENSION)
				check_extensions(((DropStmt *) statement)->objects);
			break;
		case T_CommentStmt:
			check_object(((CommentStmt *) statement)->objtype, ((CommentStmt *) statement)->object);
			break;
		case T_SecLabelStmt:
			check_object(((SecLabelStmt *) statement)->objtype, ((SecLabelStmt *) statement)->object);
			break;
		case T_AlterExtensionContentsStmt:
			check_object(((AlterExtensionContentsStmt *) statement)->objtype,
						 ((AlterExtensionContentsStmt *) statement)->object);
			break;
		case T_AlterObjectDependsStmt:
			if (((AlterObjectDependsStmt *) statement)->objectType == OBJECT_INDEX ||
				((AlterObjectDependsStmt *) statement)->objectType == OBJECT_MATVIEW)
				check(((AlterObjectDependsStmt *) statement)->relation, AS_OWNER);
			check_extension(strVal(((AlterObjectDependsStmt *) statement)->extname));
			break;
		case T_CreatePublicationStmt:
			check_published(((CreatePublicationStmt *) statement)->pubobjects);
			break;
		case T_AlterPublicationStmt:
			if (((AlterPublicationStmt *) statement)->action != AP_DropObjects)
				check_published(((AlterPublicationStmt *) statement)->pubobjects);
			break;
		default:
			break;
	}
}

static bool
is_checked(Node *statement)
{
	switch (nodeTag(statement))
	{
		case T_RuleStmt:
		case T_CreateTrigStmt:
		case T_CreateStmt:
		case T_CreateForeignTableStmt:
		case T_AlterTableStmt:
		case T_CreateStatsStmt:
		case T_DropStmt:
		case T_CommentStmt:
		case T_SecLabelStmt:
		case T_AlterExtensionContentsStmt:
		case T_AlterObjectDependsStmt:
		case T_CreatePublicationStmt:
		case T_AlterPublicationStmt:
			return !superuser() && OidIsValid(get_extension_oid(DPSQL_EXTENSION, true));
		default:
			return false;
	}
}

static void
check_before_locks(PlannedStmt *statement, const char *text, bool read_only,
				   ProcessUtilityContext context, ParamListInfo parameters,
				   QueryEnvironment *environment, DestReceiver *receiver,
				   QueryCompletion *completion)
{
	check_databases(statement->utilityStmt);
	if (is_checked(statement->utilityStmt))
	{
		if (read_only)
			statement = copyObject(statement);
		read_only = false;
		check_all(statement->utilityStmt);
	}
	(previous_utility ? previous_utility : standard_ProcessUtility)
		(statement, text, read_only, context, parameters, environment, receiver, completion);
}

void
before_locks_init(void)
{
	previous_utility = ProcessUtility_hook;
	ProcessUtility_hook = check_before_locks;
}
