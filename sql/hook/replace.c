/*
 * replace.c
 *		Turns a query into SELECT c1 AS "...", ... FROM dp.run('<query>', ...).
 *
 * The new query is built as a tree, never as text that is parsed again: the
 * function is named by OID, and parameters are the very nodes that the
 * client's protocol or PL/pgSQL's parser hooks made, with their types.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "parser/parse_node.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "compat.h"
#include "dpsql.h"

#define MAX_PARAMETERS_PER_CALL FUNC_MAX_ARGS

/*
 * dp.run has no use for a collation.  That of its call says whether the query
 * was written over exposed views, which is all that a prepared statement or a
 * stored view keeps of it.
 */
#define ASKED_OVER_VIEWS C_COLLATION_OID

/* Number the parameters that occur from 1 on; collect them as they were. */
static bool
renumber_parameters(Node *node, void *context)
{
	List	  **parameters = (List **) context;

	if (node == NULL)
		return false;
	if (IsA(node, Param) && ((Param *) node)->paramkind == PARAM_EXTERN)
	{
		Param	   *param = (Param *) node;
		int			number = 0;
		ListCell   *cell;

		foreach(cell, *parameters)
		{
			number++;
			if (lfirst_node(Param, cell)->paramid == param->paramid)
			{
				param->paramid = number;
				return false;
			}
		}
		*parameters = lappend(*parameters, copyObject(param));
		param->paramid = number + 1;
		return false;
	}
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, renumber_parameters, context, 0);
	return expression_tree_walker(node, renumber_parameters, context);
}

/* What parameters below 0 stand for: sub-queries that are read beside the question. */
static List *
with_values(List *parameters, List *values)
{
	ListCell   *cell;

	foreach(cell, parameters)
	{
		int			number = lfirst_node(Param, cell)->paramid;

		if (number < 0)
			lfirst(cell) = list_nth(values, -1 - number);
	}
	return parameters;
}

/* The relations that the query names, each once. */
static bool
collect_relations(Node *node, void *context)
{
	List	  **relations = (List **) context;

	if (node == NULL)
		return false;
	if (IsA(node, RangeTblEntry))
	{
		RangeTblEntry *rte = (RangeTblEntry *) node;
		ListCell   *cell;

		if (rte->rtekind != RTE_RELATION)
			return false;
		foreach(cell, *relations)
		{
			if (lfirst_node(RangeTblEntry, cell)->relid == rte->relid)
				return false;
		}
		*relations = lappend(*relations, rte);
		return false;
	}
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, collect_relations, context,
								 QTW_EXAMINE_RTES_BEFORE);
	return expression_tree_walker(node, collect_relations, context);
}

static Expr *
text_array_call(Oid function, List *args)
{
	return (Expr *) makeFuncExpr(function, TEXTARRAYOID, args, DEFAULT_COLLATION_OID,
								 DEFAULT_COLLATION_OID, COERCE_EXPLICIT_CALL);
}

/*
 * dp.parameters($1, ...), or NULL without parameters.  A call takes at most
 * FUNC_MAX_ARGS arguments; longer lists are concatenated.
 */
static Expr *
parameters_call(List *parameters)
{
	Oid			type = ANYOID;
	Oid			function;
	Expr	   *result = NULL;
	List	   *args = NIL;
	ListCell   *cell;

	if (parameters == NIL)
		return (Expr *) makeNullConst(TEXTARRAYOID, -1, DEFAULT_COLLATION_OID);
	function = member_function("parameters", 1, &type);
	foreach(cell, parameters)
	{
		args = lappend(args, lfirst(cell));
		if (list_length(args) == MAX_PARAMETERS_PER_CALL || !lnext(parameters, cell))
		{
			Expr	   *call = text_array_call(function, args);

			result = result ? text_array_call(F_ARRAY_CAT, list_make2(result, call)) : call;
			args = NIL;
		}
	}
	return result;
}

/* Who may not call dp.run has no budget: say that, not "permission denied". */
static void
require_analyst(ParseState *pstate, Oid function, int location)
{
	char	   *role = GetUserNameFromId(GetUserId(), false);

	if (!compat_may_call(function, GetUserId()))
		ereport(ERROR,
				(errcode(ERRCODE_DPSQL_NO_BUDGET),
				 errmsg("role \"%s\" has no privacy budget in this database", role),
				 errhint("Ask the owner of the data for SELECT dp.grant_budget(%s, epsilon => ...).",
						 quote_literal_cstr(quote_identifier(role))),
				 parser_errposition(pstate, location)));
}

/* The location lets an error of the answer point into the client's statement. */
static RangeTblFunction *
run_call(ParseState *pstate, const char *text, List *parameters, bool over_views, int location)
{
	Oid			signature[] = {TEXTOID, TEXTARRAYOID};
	Oid			function = member_function("run", 2, signature);
	Const	   *query = makeConst(TEXTOID, -1, DEFAULT_COLLATION_OID, -1,
								  CStringGetTextDatum(text), false, false);
	FuncExpr   *call = makeFuncExpr(function, RECORDOID,
									list_make2(query, parameters_call(parameters)), InvalidOid,
									over_views ? ASKED_OVER_VIEWS : DEFAULT_COLLATION_OID,
									COERCE_EXPLICIT_CALL);
	RangeTblFunction *result = makeNode(RangeTblFunction);

	require_analyst(pstate, function, location);
	if (!get_func_retset(function) || get_func_rettype(function) != RECORDOID)
		elog(ERROR, "dp.run does not return a set of records");
	call->funcretset = true;
	call->location = location;
	result->funcexpr = (Node *) call;
	return result;
}

/* Is this a call of dp.run whose query was written over exposed views? */
bool
asked_over_views(Node *call)
{
	return call && IsA(call, FuncExpr) && ((FuncExpr *) call)->inputcollid == ASKED_OVER_VIEWS;
}

/* Describe one result column to the call and let the query return it. */
static TargetEntry *
add_column(ParseState *pstate, RangeTblFunction *call, TargetEntry *original, int location)
{
	Node	   *expr = (Node *) original->expr;
	Oid			type = exprType(expr);
	int32		typmod = exprTypmod(expr);
	Oid			collation = exprCollation(expr);
	int			number = ++call->funccolcount;

	/*
	 * A literal of a sub-query that its parent will coerce: the parent has a
	 * copy of its own and never reads this column.
	 */
	if (type == UNKNOWNOID)
	{
		type = TEXTOID;
		collation = DEFAULT_COLLATION_OID;
	}
	if (get_typtype(type) == TYPTYPE_PSEUDO)
		ereport(ERROR,
				(errcode(ERRCODE_DPSQL_UNSUPPORTED),
				 errmsg("column \"%s\" beside a private aggregate has pseudo-type %s",
						original->resname, format_type_be(type)),
				 errhint("Select columns of ordinary types."),
				 parser_errposition(pstate, exprLocation(expr) >= 0 ? exprLocation(expr) : location)));
	call->funccolnames = lappend(call->funccolnames, makeString(psprintf("c%d", number)));
	call->funccoltypes = lappend_oid(call->funccoltypes, type);
	call->funccoltypmods = lappend_int(call->funccoltypmods, typmod);
	call->funccolcollations = lappend_oid(call->funccolcollations, collation);
	return makeTargetEntry((Expr *) makeVar(1, number, type, typmod, collation, 0),
						   number, original->resname, false);
}

static RangeTblEntry *
function_entry(RangeTblFunction *call)
{
	RangeTblEntry *rte = makeNode(RangeTblEntry);

	rte->rtekind = RTE_FUNCTION;
	rte->functions = list_make1(call);
	rte->alias = makeAlias("t", NIL);
	rte->eref = makeAlias("t", copyObject(call->funccolnames));
	rte->inFromCl = true;
	return rte;
}

/* A view that translate.c took out of FROM. */
static bool
is_taken_view(RangeTblEntry *rte)
{
	return rte->relkind == RELKIND_VIEW && !rte->inFromCl;
}

static bool
has_taken_view(List *relations)
{
	ListCell   *cell;

	foreach(cell, relations)
	{
		if (is_taken_view(lfirst_node(RangeTblEntry, cell)))
			return true;
	}
	return false;
}

static bool
has_row_security(Oid relation)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relation));
	bool		result = HeapTupleIsValid(tuple) &&
		((Form_pg_class) GETSTRUCT(tuple))->relrowsecurity;

	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	return result;
}

/*
 * The relations stay in the range table without being read.  So a prepared
 * statement is analysed again after they changed, and a view depends on them.
 * One with row-level security is left out: the rewriter would expand policies
 * that may fail, before dp.run can refuse the relation.  Privileges for
 * relations do not count, but those for views that translate.c took out of FROM do.
 */
static void
remember_relations(Query *result, List *relations)
{
	ListCell   *cell;

	foreach(cell, relations)
	{
		RangeTblEntry *original = lfirst_node(RangeTblEntry, cell);
		RangeTblEntry *rte;

		if (has_row_security(original->relid))
			continue;
		rte = makeNode(RangeTblEntry);
		rte->rtekind = RTE_RELATION;
		rte->relid = original->relid;
		rte->relkind = original->relkind;
		rte->rellockmode = AccessShareLock;
		rte->eref = copyObject(original->eref);
		if (is_taken_view(original))
			compat_ask_to_read(result, rte);
		else
			compat_ask_no_permission(result, rte);
		result->rtable = lappend(result->rtable, rte);
	}
}

/*
 * Replace a query, in place, by one that asks dp.run.
 *
 * pg_get_querydef() prints the analysed tree, so names, operators and
 * parameters mean for dp.run what they meant for PostgreSQL.
 */
void
replace_query(ParseState *pstate, Query *query, int location)
{
	List	   *values;
	Query	   *asked = copyObject(put_aside(pstate, query, &values));
	Query	   *result = makeNode(Query);
	RangeTblRef *from = makeNode(RangeTblRef);
	List	   *parameters = NIL;
	List	   *relations = NIL;
	RangeTblFunction *call;
	ListCell   *cell;

	if (IsInParallelMode())
		ereport(ERROR,
				(errcode(ERRCODE_DPSQL_UNSUPPORTED),
				 errmsg("a private aggregate cannot be computed during a parallel operation"),
				 errhint("Mark the function that holds the query PARALLEL UNSAFE."),
				 parser_errposition(pstate, location)));
	check_self_contained(pstate, asked, location);
	check_hidden_operators(pstate, asked, location);
	renumber_parameters((Node *) asked, &parameters);
	collect_relations((Node *) asked, &relations);
	call = run_call(pstate, deparse_query(asked), with_values(parameters, values), has_taken_view(relations),
					pstate->p_sourcetext == debug_query_string ? location : -1);

	foreach(cell, query->targetList)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, cell);

		if (!entry->resjunk)
			result->targetList = lappend(result->targetList,
										 add_column(pstate, call, entry, location));
	}
	if (call->funccolcount == 0)
		ereport(ERROR,
				(errcode(ERRCODE_DPSQL_UNSUPPORTED),
				 errmsg("a query with a private aggregate must select something"),
				 errdetail("Its list of columns is empty."),
				 errhint("Name a column or the aggregate: SELECT dp_count(*) FROM ... ."),
				 parser_errposition(pstate, location)));
	from->rtindex = 1;
	result->commandType = CMD_SELECT;
	result->querySource = query->querySource;
	result->queryId = query->queryId;
	result->canSetTag = query->canSetTag;
	result->stmt_location = query->stmt_location;
	result->stmt_len = query->stmt_len;
	result->rtable = list_make1(function_entry(call));
	result->hasSubLinks = values != NIL;
	result->jointree = makeFromExpr(list_make1(from), NULL);
	remember_relations(result, relations);
	*query = *result;
}
