/*
 * inventory.c
 *		Everything that an analysed query uses, for the allow-lists.
 *
 * A list here is complete or the allow-list has a hole: every function that
 * the executor could call, every type, every relation.  Node types that this
 * file does not know are reported as constructs, so that a later major's new
 * expression is refused rather than overlooked.
 */
#include "postgres.h"

#include "nodes/nodeFuncs.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

#include "compat.h"
#include "dpsql.h"
#include "inventory.h"

static void
add_oid(List **list, Oid oid)
{
	if (OidIsValid(oid))
		*list = list_append_unique_oid(*list, oid);
}

/* Add the type of a value that is no stored column: its input function and checks may run. */
static void
add_made(Inventory *inventory, Oid type)
{
	add_oid(&inventory->types, type);
	add_oid(&inventory->made, type);
}

static void
add_name(List **list, const char *name)
{
	ListCell   *cell;

	foreach(cell, *list)
	{
		if (strcmp((const char *) lfirst(cell), name) == 0)
			return;
	}
	*list = lappend(*list, pstrdup(name));
}

static void
add_operator(Inventory *inventory, Oid operator, Oid collation)
{
	ListCell   *one;
	ListCell   *other;

	if (!OidIsValid(operator))
		return;
	add_oid(&inventory->functions, get_opcode(operator));
	add_oid(&inventory->collations, collation);
	forboth(one, inventory->operators, other, inventory->operator_collations)
	{
		if (lfirst_oid(one) == operator && lfirst_oid(other) == collation)
			return;
	}
	inventory->operators = lappend_oid(inventory->operators, operator);
	inventory->operator_collations = lappend_oid(inventory->operator_collations, collation);
}

static void
add_operators(Inventory *inventory, List *operators, List *collations)
{
	ListCell   *one;
	ListCell   *other;

	forboth(one, operators, other, collations)
		add_operator(inventory, lfirst_oid(one), lfirst_oid(other));
}

static void
add_via_io(Inventory *inventory, CoerceViaIO *cast)
{
	Oid			output;
	Oid			input;
	Oid			io_param;
	bool		varlena;

	getTypeOutputInfo(exprType((Node *) cast->arg), &output, &varlena);
	getTypeInputInfo(cast->resulttype, &input, &io_param);
	add_oid(&inventory->functions, output);
	add_oid(&inventory->functions, input);
	inventory->viaio = true;
}

static bool
is_collatable(Node *node)
{
	return OidIsValid(get_typcollation(exprType(node)));
}

/*
 * Whether arguments disagree about the collation.  PostgreSQL lets that pass
 * and raises an error when a row is compared: one that depends on data.
 */
static bool
is_indeterminate(Node *node)
{
	List	   *args = NIL;
	ListCell   *cell;

	if (is_collatable(node) && !OidIsValid(exprCollation(node)))
		return true;
	if (OidIsValid(exprInputCollation(node)))
		return false;
	switch (nodeTag(node))
	{
		case T_FuncExpr:
			args = ((FuncExpr *) node)->args;
			break;
		case T_OpExpr:
		case T_DistinctExpr:
		case T_NullIfExpr:
			args = ((OpExpr *) node)->args;
			break;
		case T_ScalarArrayOpExpr:
			args = ((ScalarArrayOpExpr *) node)->args;
			break;
		case T_MinMaxExpr:
			args = ((MinMaxExpr *) node)->args;
			break;
		default:
			break;
	}
	foreach(cell, args)
	{
		if (is_collatable(lfirst(cell)))
			return true;
	}
	return false;
}

static void
add_var(Inventory *inventory, Var *var)
{
	if (var->varattno == InvalidAttrNumber)
		add_name(&inventory->constructs, "whole-row reference");
	else if (var->varattno < 0)
		add_name(&inventory->constructs, "system column");
}

/*
 * Functions, operators and constructs of one expression node.  False for a
 * node that is not an expression with a type.
 */
static bool
add_expression(Inventory *inventory, Node *node)
{
	const char *construct = NULL;

	switch (nodeTag(node))
	{
		case T_Var:
			add_var(inventory, (Var *) node);
			break;
		case T_FuncExpr:
			add_oid(&inventory->functions, ((FuncExpr *) node)->funcid);
			if (((FuncExpr *) node)->funcretset)
				construct = "set-returning function";
			break;
		case T_Aggref:
			add_oid(&inventory->functions, ((Aggref *) node)->aggfnoid);
			break;
		case T_WindowFunc:
			add_oid(&inventory->functions, ((WindowFunc *) node)->winfnoid);
			construct = "WindowFunc";
			break;
		case T_OpExpr:
			add_operator(inventory, ((OpExpr *) node)->opno, ((OpExpr *) node)->inputcollid);
			break;
		case T_DistinctExpr:
			add_operator(inventory, ((DistinctExpr *) node)->opno,
						 ((DistinctExpr *) node)->inputcollid);
			break;
		case T_NullIfExpr:
			add_operator(inventory, ((NullIfExpr *) node)->opno,
						 ((NullIfExpr *) node)->inputcollid);
			break;
		case T_ScalarArrayOpExpr:
			add_operator(inventory, ((ScalarArrayOpExpr *) node)->opno,
						 ((ScalarArrayOpExpr *) node)->inputcollid);
			break;
		case T_RowCompareExpr:
			add_operators(inventory, ((RowCompareExpr *) node)->opnos,
						  ((RowCompareExpr *) node)->inputcollids);
			construct = "RowCompareExpr";
			break;
		case T_MinMaxExpr:
			add_oid(&inventory->functions,
					lookup_type_cache(((MinMaxExpr *) node)->minmaxtype,
									  TYPECACHE_CMP_PROC)->cmp_proc);
			construct = "MinMaxExpr";
			break;
		case T_CoerceViaIO:
			add_via_io(inventory, (CoerceViaIO *) node);
			break;
		case T_CoerceToDomain:
			add_oid(&inventory->domains, ((CoerceToDomain *) node)->resulttype);
			construct = "CoerceToDomain";
			break;
		case T_SQLValueFunction:
			add_name(&inventory->sqlvalues, compat_sqlvalue((SQLValueFunction *) node));
			break;
		case T_NextValueExpr:
			construct = "NextValueExpr";
			break;
		case T_GroupingFunc:
			construct = "GroupingFunc";
			break;
		case T_SubLink:
			construct = "SubLink";
			break;
		case T_SubscriptingRef:
			construct = "SubscriptingRef";
			break;
		case T_FieldSelect:
			construct = "FieldSelect";
			break;
		case T_FieldStore:
			construct = "FieldStore";
			break;
		case T_ArrayCoerceExpr:
			construct = "ArrayCoerceExpr";
			break;
		case T_ConvertRowtypeExpr:
			construct = "ConvertRowtypeExpr";
			break;
		case T_RowExpr:
			construct = "RowExpr";
			break;
		case T_XmlExpr:
			construct = "XmlExpr";
			break;
		case T_CurrentOfExpr:
			construct = "CurrentOfExpr";
			break;
		case T_Const:
		case T_Param:
		case T_BoolExpr:
		case T_RelabelType:
		case T_CollateExpr:
		case T_CaseExpr:
		case T_CaseTestExpr:
		case T_ArrayExpr:
		case T_CoalesceExpr:
		case T_NullTest:
		case T_BooleanTest:
			break;
		default:
			return false;
	}
	if (construct)
		add_name(&inventory->constructs, construct);
	if (is_indeterminate(node))
		add_name(&inventory->constructs, INDETERMINATE_COLLATION);
	if (IsA(node, Var))
		add_oid(&inventory->types, exprType(node));
	else
		add_made(inventory, exprType(node));
	add_oid(&inventory->collations, exprCollation(node));
	add_oid(&inventory->collations, exprInputCollation(node));
	return true;
}

static bool take(Node *node, void *context);

/*
 * The columns of a join.  Those that are plain columns of its sides count where
 * the query uses them, as the columns of a FROM list do; the others hold casts.
 */
static void
add_join(Inventory *inventory, RangeTblEntry *rte)
{
	ListCell   *cell;

	foreach(cell, rte->joinaliasvars)
	{
		if (lfirst(cell) && !IsA(lfirst(cell), Var))
			take((Node *) lfirst(cell), inventory);
	}
}

static void
add_relation(Inventory *inventory, RangeTblEntry *rte)
{
	ListCell   *cell;

	switch (rte->rtekind)
	{
		case RTE_RELATION:
			add_oid(&inventory->relations, rte->relid);
			if (rte->tablesample)
			{
				add_oid(&inventory->functions, rte->tablesample->tsmhandler);
				add_name(&inventory->constructs, "TableSampleClause");
			}
			break;
		case RTE_FUNCTION:
			add_name(&inventory->constructs, "function in FROM");
			foreach(cell, rte->functions)
			{
				ListCell   *type;

				foreach(type, lfirst_node(RangeTblFunction, cell)->funccoltypes)
					add_made(inventory, lfirst_oid(type));
			}
			break;
		case RTE_TABLEFUNC:
			add_name(&inventory->constructs, "TableFunc");
			foreach(cell, rte->tablefunc->coltypes)
				add_made(inventory, lfirst_oid(cell));
			break;
		case RTE_VALUES:
			add_name(&inventory->constructs, "VALUES");
			break;
		case RTE_JOIN:
			add_join(inventory, rte);
			break;
		case RTE_NAMEDTUPLESTORE:
			add_name(&inventory->constructs, "transition table");
			break;
		default:
			break;
	}
	if (rte->lateral)
		add_name(&inventory->constructs, "LATERAL");
}

static void
add_query(Inventory *inventory, Query *query)
{
	inventory->grouping_sets |= query->groupingSets != NIL;
	inventory->for_update |= query->hasForUpdate || query->rowMarks != NIL;
	inventory->target_srfs |= query->hasTargetSRFs;
	inventory->set_operations |= query->setOperations != NULL;
}

/* Parts of a query that carry functions but are no expressions. */
static bool
add_clause(Inventory *inventory, Node *node)
{
	switch (nodeTag(node))
	{
		case T_SortGroupClause:
			add_operator(inventory, ((SortGroupClause *) node)->eqop, InvalidOid);
			add_operator(inventory, ((SortGroupClause *) node)->sortop, InvalidOid);
			return true;
		case T_WindowClause:
			add_oid(&inventory->functions, ((WindowClause *) node)->startInRangeFunc);
			add_oid(&inventory->functions, ((WindowClause *) node)->endInRangeFunc);
			return true;
		case T_CTECycleClause:
			add_operator(inventory, ((CTECycleClause *) node)->cycle_mark_neop,
						 ((CTECycleClause *) node)->cycle_mark_collation);
			return true;
		case T_List:
		case T_TargetEntry:
		case T_FromExpr:
		case T_JoinExpr:
		case T_RangeTblRef:
		case T_RangeTblFunction:
		case T_CommonTableExpr:
		case T_CTESearchClause:
		case T_TableFunc:
		case T_TableSampleClause:
		case T_GroupingSet:
		case T_NamedArgExpr:
		case T_CaseWhen:
			return true;
		default:
			return false;
	}
}

static bool
take(Node *node, void *context)
{
	Inventory  *inventory = (Inventory *) context;
	ListCell   *cell;

	if (node == NULL)
		return false;
	if (IsA(node, Query))
	{
		add_query(inventory, (Query *) node);
		return query_tree_walker((Query *) node, take, context,
								 QTW_EXAMINE_RTES_BEFORE | QTW_EXAMINE_SORTGROUP |
								 QTW_IGNORE_JOINALIASES);
	}
	if (IsA(node, RangeTblEntry))
	{
		add_relation(inventory, (RangeTblEntry *) node);
		return false;			/* the walker goes into it by itself */
	}
	if (IsA(node, SetOperationStmt))
	{
		foreach(cell, ((SetOperationStmt *) node)->groupClauses)
			take(lfirst(cell), context);
		foreach(cell, ((SetOperationStmt *) node)->colTypes)
			add_made(inventory, lfirst_oid(cell));
	}
	else if (!add_expression(inventory, node) && !add_clause(inventory, node))
		add_name(&inventory->constructs,
				 compat_construct(node) ? compat_construct(node)
				 : psprintf("node %d", (int) nodeTag(node)));
	return expression_tree_walker(node, take, context);
}

/* Collect what the query and everything in it uses. */
void
take_inventory(Query *query, Inventory *inventory)
{
	take((Node *) query, inventory);
}
