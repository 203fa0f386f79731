/*
 * deparse.c
 *		Text to analysed query and back, both ways without ambiguity.
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "nodes/nodeFuncs.h"
#include "parser/analyze.h"
#include "parser/parse_expr.h"
#include "parser/parser.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/ruleutils.h"

#include "dpsql.h"
#include "service.h"
#include "inventory.h"
#include "literals.h"

PG_FUNCTION_INFO_V1(dpsql_deparse);

/*
 * The settings that decide how values and names are printed, and under which
 * the text is read again (by dp.run).  pg_temp is named last, because it is
 * searched first where it is not named: a temporary table could otherwise
 * stand in for a catalogue table in the unqualified text.
 */
static const struct
{
	const char *name;
	const char *value;
}			reading_settings[] = {
	{"search_path", "pg_catalog, pg_temp"},
	{"standard_conforming_strings", "on"},
	{"quote_all_identifiers", "off"},
	{"datestyle", "ISO, YMD"},
	{"intervalstyle", "postgres"},
	{"timezone", "UTC"},
	{"extra_float_digits", "3"},
	{"bytea_output", "hex"},
	{"xmlbinary", "base64"},
};

/* Set them; the result is to be given to unpin_reading_settings(). */
int
pin_reading_settings(void)
{
	int			nestlevel = NewGUCNestLevel();

	for (int i = 0; i < lengthof(reading_settings); i++)
		(void) set_config_option(reading_settings[i].name, reading_settings[i].value,
								 PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	return nestlevel;
}

/* Undo pin_reading_settings(), after an error as well. */
void
unpin_reading_settings(int nestlevel)
{
	AtEOXact_GUC(true, nestlevel);
}

/* The service session, which reads the text again, does not see temporary relations. */
static void
require_permanent(Query *query)
{
	Inventory	inventory = {0};
	ListCell   *cell;

	take_inventory(query, &inventory);
	foreach(cell, inventory.relations)
	{
		char	   *name = get_rel_name(lfirst_oid(cell));

		if (name && get_rel_persistence(lfirst_oid(cell)) == RELPERSISTENCE_TEMP)
			ereport(ERROR,
					(errcode(ERRCODE_DPSQL_UNDECLARED),
					 errmsg("relation \"%s\" is temporary, and a question cannot read it", name),
					 errdetail("Questions are answered in a session of their own."),
					 errhint("Write the schema of the relation that is meant, as in public.%s, or make a permanent table.", name)));
	}
}

/* Print a query, which must be the caller's own copy: printing may change it. */
char *
deparse_query(Query *query)
{
	int			nestlevel;
	char	   *volatile text = NULL;

	require_permanent(query);
	nestlevel = pin_reading_settings();
	PG_TRY();
	{
		text = pg_get_querydef(query, false);
	}
	PG_FINALLY();
	{
		unpin_reading_settings(nestlevel);
	}
	PG_END_TRY();
	return text;
}

/* An error position in the text is not one in the statement that we run in. */
static void
point_into_text(void *text)
{
	int			position = geterrposition();

	if (position > 0)
	{
		errposition(0);
		internalerrposition(position);
		internalerrquery((const char *) text);
	}
}

/* The texts of an array; NULL for a NULL. */
const char *const *
text_array_values(ArrayType *array, int *count)
{
	Datum	   *values;
	bool	   *nulls;
	const char **result;

	deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, &values, &nulls, count);
	result = palloc0(sizeof(char *) * Max(*count, 1));
	for (int i = 0; i < *count; i++)
		result[i] = nulls[i] ? NULL : TextDatumGetCString(values[i]);
	return result;
}

typedef struct
{
	const char *const *values;
	int			count;
	bool		typed;			/* literals with types, or bare values */
	bool		guarded;		/* in a service session: strings are converted by string_value */
	Strings		strings;
} Parameters;

static Node *
literal_of(const char *text)
{
	List	   *statements = raw_parser(psprintf("SELECT %s", text), RAW_PARSE_DEFAULT);
	SelectStmt *select = list_length(statements) == 1 ?
		(SelectStmt *) linitial_node(RawStmt, statements)->stmt : NULL;
	Node	   *value = NULL;

	if (select && IsA(select, SelectStmt) && list_length(select->targetList) == 1)
		value = linitial_node(ResTarget, select->targetList)->val;
	if (!value || !IsA(value, TypeCast) || !IsA(((TypeCast *) value)->arg, A_Const))
		ereport(ERROR,
				(errcode(ERRCODE_DPSQL_PARAMETER),
				 errmsg("a query parameter must be a literal with a type"),
				 errhint("Use dp.parameters(...) to write the parameters.")));
	((TypeCast *) value)->location = -1;
	((TypeCast *) value)->typeName->location = -1;
	((A_Const *) ((TypeCast *) value)->arg)->location = -1;
	return value;
}

/* A value whose type follows from its place, like a string that somebody wrote there. */
static Node *
value_of(const char *text)
{
	A_Const    *value = makeNode(A_Const);

	value->location = -1;
	value->isnull = text == NULL;
	if (text)
	{
		value->val.sval.type = T_String;
		value->val.sval.sval = pstrdup(text);
	}
	return (Node *) value;
}

/* $n stands for the n-th literal or value. */
static Node *
bind_parameter(ParseState *pstate, ParamRef *reference)
{
	Parameters *parameters = (Parameters *) pstate->p_ref_hook_state;
	int			number = reference->number;
	const char *text;
	Node	   *value;

	if (number < 0 && parameters->guarded)
		return string_parameter(reference);
	if (number < 1 || number > parameters->count)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_PARAMETER),
				 errmsg("there is no parameter $%d", number),
				 parameters->values ?
				 errhint("Give a value for each parameter after the statement:"
						 " SELECT * FROM dp.explain($$ ... $$, 'value of $1', ...).") :
				 errhint("Write the value itself in the place of $%d.", number),
				 parser_errposition(pstate, reference->location)));
	text = parameters->values[number - 1];
	if (parameters->typed && text == NULL)
		return NULL;			/* PostgreSQL reports the error */
	value = parameters->typed ? literal_of(text) : value_of(text);
	if (parameters->guarded)
		take_strings(&parameters->strings, value);
	return transformExpr(pstate, value, pstate->p_expr_kind);
}

static Node *
give_type(ParseState *pstate, Param *param, Oid type, int32 modifier, int location)
{
	Parameters *parameters = (Parameters *) pstate->p_ref_hook_state;

	return string_value(&parameters->strings, pstate, param, type, modifier);
}

static RawStmt *
parse_one_select(const char *text)
{
	List	   *statements = raw_parser(text, RAW_PARSE_DEFAULT);
	RawStmt    *statement = statements == NIL ? NULL : linitial_node(RawStmt, statements);

	if (list_length(statements) != 1 || !IsA(statement->stmt, SelectStmt))
		ereport(ERROR,
				(errcode(ERRCODE_DPSQL_SYNTAX),
				 errmsg("the text must be exactly one SELECT statement"),
				 errhint("Pass one query, such as SELECT dp_count(*) FROM ....")));
	return statement;
}

static void
refuse_into(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_DPSQL_SYNTAX),
			 errmsg("the text must be exactly one SELECT statement"),
			 errhint("Use CREATE TABLE ... AS around the query instead of SELECT INTO.")));
}

static void
refuse_modifying(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_DPSQL_UNSUPPORTED),
			 errmsg("WITH queries that modify data are not supported"),
			 errhint("Run the INSERT, UPDATE or DELETE as a statement of its own.")));
}

/* Refuse statements that write before their literals are read. */
static bool
refuse_writing(Node *node, void *unused)
{
	if (node == NULL)
		return false;
	if (IsA(node, SelectStmt) && ((SelectStmt *) node)->intoClause)
		refuse_into();
	if (IsA(node, CommonTableExpr) && !IsA(((CommonTableExpr *) node)->ctequery, SelectStmt))
		refuse_modifying();
	return raw_expression_tree_walker(node, refuse_writing, unused);
}

static void
require_select(Query *query)
{
	if (query->commandType != CMD_SELECT)
		refuse_into();
	if (query->hasModifyingCTE)
		refuse_modifying();
}

/*
 * Parse and analyse one SELECT under the settings in effect.  The analysis
 * does not pass post_parse_analyze_hook, so nothing in it is replaced.
 */
Query *
analyse_text(const char *text, const char *const *values, int count, bool typed)
{
	ErrorContextCallback callback = {
		.previous = error_context_stack,
		.callback = point_into_text,
		.arg = unconstify(char *, text),
	};
	Parameters	parameters = {values, count, typed, is_serving(), {NULL}};
	ParseState *pstate = make_parsestate(NULL);
	RawStmt    *statement;
	Query	   *query;

	error_context_stack = &callback;
	pstate->p_sourcetext = text;
	pstate->p_paramref_hook = bind_parameter;
	pstate->p_ref_hook_state = &parameters;
	statement = parse_one_select(text);
	refuse_writing(statement->stmt, NULL);
	if (parameters.guarded)
	{
		pstate->p_coerce_param_hook = give_type;
		take_strings(&parameters.strings, statement->stmt);
		require_all_taken(&parameters.strings, text);
	}
	query = transformTopLevelStmt(pstate, statement);
	if (parameters.guarded)
		query = put_strings_back(&parameters.strings, query);
	check_hidden_operators(pstate, query, -1);
	free_parsestate(pstate);
	require_select(query);
	error_context_stack = callback.previous;
	return query;
}

static Datum
deparse(FunctionCallInfo fcinfo)
{
	char	   *source = text_to_cstring(PG_GETARG_TEXT_PP(0));
	const char *const *values = NULL;
	int			count = 0;

	if (PG_NARGS() > 1)
		values = text_array_values(PG_GETARG_ARRAYTYPE_P(1), &count);
	PG_RETURN_TEXT_P(cstring_to_text(deparse_query(analyse_text(source, values, count, false))));
}

/* dp.deparse(query text [, parameters text[]]) returns text */
Datum
dpsql_deparse(PG_FUNCTION_ARGS)
{
	return call_apart(deparse, fcinfo);
}
