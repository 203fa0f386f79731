/*
 * exposed.c
 *		The exposed views of the schema dpv, and what each stands for in a
 *		question: a derived table of the relation's exposed columns.
 *
 * What is exposed is the catalogue's business (dp.exposed_columns).
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/transam.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "commands/extension.h"
#include "fmgr.h"
#include "nodes/makefuncs.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "compat.h"
#include "dpsql.h"

/* A view of the schema dpv, where nobody but the extension makes any. */
bool
is_dpv_view(Oid relation)
{
	return relation >= FirstNormalObjectId && get_rel_relkind(relation) == RELKIND_VIEW &&
		get_rel_namespace(relation) == get_namespace_oid(DPSQL_VIEW_SCHEMA, true) &&
		OidIsValid(get_extension_oid(DPSQL_EXTENSION, true));
}

/* dp.exposed_columns(view) gives relation and column numbers, or 0 and what is wrong with them. */
static void
look_up(Exposed *exposed)
{
	LOCAL_FCINFO(call, 1);
	Oid			types[] = {OIDOID};
	FmgrInfo	function;
	Datum		told;
	const char *const *parts;

	fmgr_info(member_function("exposed_columns", 1, types), &function);
	InitFunctionCallInfoData(*call, &function, 1, InvalidOid, NULL, NULL);
	call->args[0].value = ObjectIdGetDatum(exposed->view);
	call->args[0].isnull = false;
	told = FunctionCallInvoke(call);
	if (call->isnull)
		return;
	parts = text_array_values(DatumGetArrayTypeP(told), &exposed->count);
	exposed->relation = atooid(parts[0]);
	if (!OidIsValid(exposed->relation))
	{
		exposed->problem = parts + 1;
		return;
	}
	exposed->columns = palloc(sizeof(AttrNumber) * exposed->count--);
	for (int i = 0; i < exposed->count; i++)
		exposed->columns[i] = atoi(parts[i + 1]);
}

/* What the view in FROM exposes, or NULL for anything else; looked up once for a list of known ones. */
const Exposed *
exposed_by(List **known, RangeTblEntry *rte)
{
	Exposed    *exposed;
	ListCell   *cell;
	bool		push;

	if (rte->rtekind != RTE_RELATION || rte->relkind != RELKIND_VIEW || !rte->inFromCl)
		return NULL;
	foreach(cell, *known)
	{
		exposed = (Exposed *) lfirst(cell);
		if (exposed->view == rte->relid)
			return OidIsValid(exposed->relation) || exposed->problem ? exposed : NULL;
	}
	if (!is_dpv_view(rte->relid))
		return NULL;
	exposed = palloc0(sizeof(Exposed));
	exposed->view = rte->relid;
	push = !ActiveSnapshotSet();
	if (push)
		PushActiveSnapshot(GetTransactionSnapshot());
	look_up(exposed);
	if (push)
		PopActiveSnapshot();
	*known = lappend(*known, exposed);
	return OidIsValid(exposed->relation) || exposed->problem ? exposed : NULL;
}

/* The names of all columns, as a relation's entry in a range table has them. */
static List *
column_names(Oid relation)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relation));
	List	   *names = NIL;
	int			count = 0;

	if (HeapTupleIsValid(tuple))
	{
		count = ((Form_pg_class) GETSTRUCT(tuple))->relnatts;
		ReleaseSysCache(tuple);
	}
	for (AttrNumber i = 1; i <= count; i++)
	{
		char	   *name = get_attname(relation, i, true);

		names = lappend(names, makeString(name ? name : pstrdup("")));
	}
	return names;
}

/* SELECT exposed columns FROM relation, as the definition of a view is. */
Query *
exposed_selection(const Exposed *exposed)
{
	Query	   *result = makeNode(Query);
	RangeTblEntry *rte = makeNode(RangeTblEntry);
	RangeTblRef *from = makeNode(RangeTblRef);

	if (exposed->problem)
		ereport(ERROR,
				(errcode(ERRCODE_DPSQL_NOT_ANSWERABLE),
				 errmsg("%s", exposed->problem[0]),
				 errdetail("%s", exposed->problem[1]),
				 errhint("%s", exposed->problem[2])));
	rte->rtekind = RTE_RELATION;
	rte->relid = exposed->relation;
	rte->relkind = get_rel_relkind(exposed->relation);
	rte->rellockmode = AccessShareLock;
	rte->inh = true;
	rte->inFromCl = true;
	rte->eref = makeAlias(get_rel_name(exposed->relation), column_names(exposed->relation));
	compat_ask_no_permission(result, rte);
	for (int i = 0; i < exposed->count; i++)
	{
		char	   *name = get_attname(exposed->view, i + 1, false);
		Oid			type;
		Oid			shown_type;
		int32		typmod;
		Oid			collation;
		Expr	   *column;

		get_atttypetypmodcoll(exposed->view, i + 1, &shown_type, &typmod, &collation);
		get_atttypetypmodcoll(exposed->relation, exposed->columns[i], &type, &typmod, &collation);
		column = (Expr *) makeVar(1, exposed->columns[i], type, typmod, collation, 0);
		if (type != shown_type && getBaseType(type) == shown_type)
			column = (Expr *) makeRelabelType(column, shown_type, -1, collation,
											  COERCE_EXPLICIT_CAST);
		else if (type != shown_type)
		{
			/* an enum, or a domain over one, which is shown as text */
			CoerceViaIO *cast = makeNode(CoerceViaIO);

			cast->arg = column;
			cast->resulttype = shown_type;
			cast->resultcollid = get_typcollation(shown_type);
			cast->coerceformat = COERCE_EXPLICIT_CAST;
			cast->location = -1;
			column = (Expr *) cast;
		}
		result->targetList = lappend(result->targetList,
									 makeTargetEntry(column, i + 1, name, false));
	}
	from->rtindex = 1;
	result->commandType = CMD_SELECT;
	result->querySource = QSRC_ORIGINAL;
	result->canSetTag = true;
	result->rtable = list_make1(rte);
	result->jointree = makeFromExpr(list_make1(from), NULL);
	return result;
}
