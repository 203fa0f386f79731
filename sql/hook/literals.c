/*
 * literals.c
 *		Convert the string literals of a text; refuse those whose type runs the
 *		CHECK of a domain.
 *
 * Analysis converts a string literal by the input function of the type that its
 * place requires.  The input functions of array, row and range types check the
 * domains within.  Such a CHECK would run in the service session, which has read
 * rows.  PostgreSQL calls no hook when it converts a string.  It calls
 * p_coerce_param_hook when it gives a type to a parameter of unknown type.  So
 * each string becomes such a parameter.  The hook refuses these types and
 * converts other strings as the parser does.
 *
 * raw_expression_tree_walker() skips a few nodes, such as CYCLE.  A string there
 * would be converted without the hook.  So a statement is refused if the scanner
 * finds a string that the walk did not.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "common/keywords.h"
#include "mb/pg_wchar.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "parser/parse_coerce.h"
#include "parser/parse_type.h"
#include "parser/parser.h"
#include "parser/scanner.h"
#include "utils/syscache.h"

#include "compat.h"
#include "dpsql.h"
#include "literals.h"

StaticAssertDecl(sizeof(A_Const) >= sizeof(ParamRef), "a literal is replaced where it is");
StaticAssertDecl(sizeof(FuncCall) >= sizeof(TypeCast), "a call is replaced where it is");

/* Tokens of gram.h, which is not installed on all majors.  PL/pgSQL relies on the same numbers. */
enum
{
	UIDENT = 259,
	SCONST = 261,
	USCONST = 262,
};

/* The first string of a hash value. */
typedef struct
{
	uint32		key;
	int			number;
} Numbered;

static void
refuse_place(int position)
{
	ereport(ERROR,
			(errcode(ERRCODE_DPSQL_UNSUPPORTED),
			 errmsg("a string is not supported in this place of a question"),
			 errhint("Leave out the clause that it stands in, such as CYCLE or JSON_TABLE."),
			 position > 0 ? errposition(position) : 0));
}

/* Whether func_get_detail() takes a call for a cast: type('...'), unless the type is composite. */
static bool
is_cast(FuncCall *call)
{
	Node	   *argument = list_length(call->args) == 1 ? linitial(call->args) : NULL;
	Type		type;
	bool		found;

	if (!argument || !IsA(argument, A_Const) || ((A_Const *) argument)->isnull ||
		!IsA(&((A_Const *) argument)->val, String) || call->agg_order || call->agg_filter ||
		call->over || call->agg_within_group || call->agg_distinct)
		return false;
	type = LookupTypeNameExtended(NULL, makeTypeNameFromNameList(call->funcname), NULL, false, false);
	if (type == NULL)
		return false;
	found = ((Form_pg_type) GETSTRUCT(type))->typisdefined && !OidIsValid(typeTypeRelid(type));
	ReleaseSysCache(type);
	return found;
}

static void
write_as_cast(FuncCall *call)
{
	Node	   *argument = linitial(call->args);
	TypeName   *name = makeTypeNameFromNameList(call->funcname);
	int			location = call->location;
	TypeCast   *cast = (TypeCast *) call;

	cast->type = T_TypeCast;
	cast->arg = argument;
	cast->typeName = name;
	cast->location = location;
}

/*
 * The number of a string's parameter.  Equal strings have the same: analysis
 * compares expressions before untyped strings are put back.
 */
static int
number_of(Strings *strings, char *text)
{
	uint32		key = hash_bytes((const unsigned char *) text, strlen(text));
	HASHCTL		control = {.keysize = sizeof(uint32),.entrysize = sizeof(Numbered),
	.hcxt = CurrentMemoryContext};
	Numbered   *first;
	bool		found;

	if (strings->numbers == NULL)
		strings->numbers = hash_create("strings of a statement", 64, &control,
									   HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	first = hash_search(strings->numbers, &key, HASH_ENTER, &found);
	if (found && strcmp(list_nth(strings->texts, -1 - first->number), text) == 0)
		return first->number;
	strings->texts = lappend(strings->texts, text);
	if (!found)
		first->number = -list_length(strings->texts);
	return -list_length(strings->texts);
}

/* PostgreSQL refuses a string as a whole item of these clauses, for it is no position; it converts none. */
static void
keep_places(SelectStmt *select, Strings *strings)
{
	List	   *items = list_concat_copy(select->groupClause, select->distinctClause);
	ListCell   *cell;

	foreach(cell, select->sortClause)
		items = lappend(items, lfirst_node(SortBy, cell)->node);
	foreach(cell, items)
	{
		if (lfirst(cell) && IsA(lfirst(cell), A_Const))
			strings->kept = lappend(strings->kept, lfirst(cell));
	}
	list_free(items);
}

static bool
take(Node *node, void *context)
{
	Strings    *strings = context;

	if (node == NULL)
		return false;
	if (compat_is_json_table(node))
		refuse_place(0);
	/* the scanner reads $4294967295 as -1, which is the number of a string */
	if (IsA(node, ParamRef) && ((ParamRef *) node)->number < 1)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_PARAMETER),
				 errmsg("there is no parameter $%u", (unsigned int) ((ParamRef *) node)->number),
				 errhint("Number the parameters from $1 on.")));
	if (IsA(node, SelectStmt))
		keep_places((SelectStmt *) node, strings);
	if (IsA(node, A_Const))
	{
		A_Const    *constant = (A_Const *) node;
		int			location = constant->location;

		if (constant->isnull || !IsA(&constant->val, String))
			return false;
		strings->places = bms_add_member(strings->places, location + 1);
		if (!strings->in_type && !list_member_ptr(strings->kept, node))
		{
			ParamRef   *reference = (ParamRef *) node;
			int			number = number_of(strings, constant->val.sval.sval);

			reference->type = T_ParamRef;
			reference->number = number;
			reference->location = location;
		}
		return false;
	}
	/* func_get_detail() recognises the cast by its constant, which becomes a parameter */
	if (IsA(node, FuncCall) && is_cast((FuncCall *) node))
		write_as_cast((FuncCall *) node);
	if (IsA(node, TypeName))
	{
		bool		in_type = strings->in_type;

		/* typenameTypeMod() accepts constants only; no CHECK of a domain reads them */
		strings->in_type = true;
		raw_expression_tree_walker(node, take, context);
		strings->in_type = in_type;
		return false;
	}
	return raw_expression_tree_walker(node, take, context);
}

/* Replace the strings of a raw statement or expression by parameters. */
void
take_strings(Strings *strings, Node *raw)
{
	take(raw, strings);
}

/* Refuse a text that has a string which take_strings has not found. */
void
require_all_taken(Strings *strings, const char *text)
{
	core_yy_extra_type extra;
	core_YYSTYPE value;
	YYLTYPE		start;
	core_yyscan_t scanner = scanner_init(text, &extra, &ScanKeywords, ScanKeywordTokens);
	bool		escape = false; /* is the next string that of U&'...' UESCAPE '!'? */
	int			uescape = ScanKeywordTokens[ScanKeywordLookup("uescape", &ScanKeywords)];
	int			previous = 0;
	int			token;

	extra.escape_string_warning = false;
	while ((token = core_yylex(&value, &start, scanner)) != 0)
	{
		if ((token == SCONST || token == USCONST) && !escape &&
			!bms_is_member(start + 1, strings->places))
			refuse_place(pg_mbstrlen_with_len(text, start) + 1);
		escape = (previous == USCONST || previous == UIDENT) && token == uescape;
		previous = token;
	}
	scanner_finish(scanner);
}

/* The parameter in the place of a string. */
Node *
string_parameter(ParamRef *reference)
{
	Param	   *param = makeNode(Param);

	param->paramkind = PARAM_EXTERN;
	param->paramid = reference->number;
	param->paramtype = UNKNOWNOID;
	param->paramtypmod = -1;
	param->paramcollid = InvalidOid;
	param->location = reference->location;
	return (Node *) param;
}

static Const *
string_of(Strings *strings, Param *param)
{
	int			number = -1 - param->paramid;
	Const	   *constant;

	if (number < 0 || number >= list_length(strings->texts))
		elog(ERROR, "parameter %d is no string of the statement", param->paramid);
	constant = makeConst(UNKNOWNOID, -1, InvalidOid, -2,
						 CStringGetDatum(pstrdup(list_nth(strings->texts, number))), false, false);
	constant->location = param->location;
	return constant;
}

/* Convert a string to the type that its place requires; NULL if the parameter is no string. */
Node *
string_value(Strings *strings, ParseState *pstate, Param *param, Oid type, int32 modifier)
{
	if (param->paramid >= 0 || param->paramtype != UNKNOWNOID)
		return NULL;
	require_no_checks(pstate, type, param->location);
	/* a cast to a domain is shown as one, so that it is refused as others are */
	return coerce_type(pstate, (Node *) string_of(strings, param), UNKNOWNOID, type, modifier,
					   COERCION_EXPLICIT, COERCE_EXPLICIT_CAST, param->location);
}

static Node *
put_back(Node *node, void *strings)
{
	if (node == NULL)
		return NULL;
	if (IsA(node, Param) && ((Param *) node)->paramid < 0)
		return (Node *) string_of(strings, (Param *) node);
	if (IsA(node, Query))
		return (Node *) query_tree_mutator((Query *) node, put_back, strings, 0);
	return expression_tree_mutator(node, put_back, strings);
}

static bool
is_left(Node *node, void *unused)
{
	if (node == NULL)
		return false;
	if (IsA(node, Param) && ((Param *) node)->paramid < 0)
		return true;
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, is_left, unused, 0);
	return expression_tree_walker(node, is_left, unused);
}

/* Turn parameters that got no type back into strings, as in arguments of type "any". */
Query *
put_strings_back(Strings *strings, Query *query)
{
	if (!is_left((Node *) query, NULL))
		return query;
	return (Query *) put_back((Node *) query, strings);
}
