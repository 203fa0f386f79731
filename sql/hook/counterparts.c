/*
 * counterparts.c
 *		Which private aggregate stands for which of PostgreSQL's own, in
 *		questions over exposed views.
 */
#include "postgres.h"

#include <ctype.h>

#include "access/htup_details.h"
#include "catalog/pg_aggregate.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "dpsql.h"

/* PostgreSQL's aggregates that have a private counterpart of the same name, behind "dp_". */
static const char *const answered[] = {
	"count", "sum", "avg", "min", "max", "var_pop", "var_samp", "variance",
	"stddev_pop", "stddev_samp", "stddev",
};

static Oid
private_aggregate(const char *name, oidvector *arguments)
{
	Oid			found = GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid,
										CStringGetDatum(name),
										PointerGetDatum(arguments),
										ObjectIdGetDatum(PG_PUBLIC_NAMESPACE));

	return OidIsValid(found) && is_private_aggregate(found) ? found : InvalidOid;
}

/* The private aggregate of the same arguments as one of PostgreSQL's own, or InvalidOid. */
Oid
private_counterpart(Oid aggregate)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(aggregate));
	Form_pg_proc form;
	Oid			found = InvalidOid;

	if (!HeapTupleIsValid(tuple))
		return InvalidOid;
	form = (Form_pg_proc) GETSTRUCT(tuple);
	for (int i = 0; i < lengthof(answered); i++)
	{
		if (form->pronamespace == PG_CATALOG_NAMESPACE && form->prokind == PROKIND_AGGREGATE &&
			strcmp(NameStr(form->proname), answered[i]) == 0)
			found = private_aggregate(psprintf("dp_%s", answered[i]), &form->proargtypes);
	}
	ReleaseSysCache(tuple);
	return found;
}

/*
 * percentile_cont(share) WITHIN GROUP (ORDER BY x), and percentile_disc, as
 * dp_percentile(x, share); false for more than one share and other orders.
 */
static bool
make_percentile(Aggref *aggregate)
{
	TargetEntry *value = linitial_node(TargetEntry, aggregate->args);
	Node	   *share = (Node *) linitial(aggregate->aggdirectargs);
	SortGroupClause *order = linitial_node(SortGroupClause, aggregate->aggorder);
	Oid			type = exprType((Node *) value->expr);
	Oid			arguments[] = {type, FLOAT8OID};
	Oid			counterpart = private_aggregate("dp_percentile", buildoidvector(arguments, 2));

	if (!OidIsValid(counterpart) || exprType(share) != FLOAT8OID ||
		get_func_rettype(counterpart) != aggregate->aggtype ||
		order->sortop != lookup_type_cache(type, TYPECACHE_LT_OPR)->lt_opr)
		return false;
	value->ressortgroupref = 0;
	aggregate->aggfnoid = counterpart;
	aggregate->aggkind = AGGKIND_NORMAL;
	aggregate->args = list_make2(value, makeTargetEntry((Expr *) share, 2, NULL, false));
	aggregate->aggargtypes = list_make2_oid(type, FLOAT8OID);
	aggregate->aggdirectargs = NIL;
	aggregate->aggorder = NIL;
	return true;
}

/* Let an aggregate of PostgreSQL be the private one in its place; false if there is none. */
bool
make_private_aggregate(Aggref *aggregate)
{
	Oid			counterpart;

	if (aggregate->aggfnoid == F_PERCENTILE_CONT_FLOAT8_FLOAT8 ||
		aggregate->aggfnoid == F_PERCENTILE_DISC_FLOAT8_ANYELEMENT)
		return make_percentile(aggregate);
	counterpart = private_counterpart(aggregate->aggfnoid);
	if (!OidIsValid(counterpart) || get_func_rettype(counterpart) != aggregate->aggtype)
		return false;
	aggregate->aggfnoid = counterpart;
	return true;
}

/* An aggregate of PostgreSQL by its private one's name, or by its own; NULL for other words. */
const char *
ordinary_name(const char *word)
{
	const char *name = strncmp(word, "dp_", 3) == 0 ? word + 3 : word;

	for (int i = 0; i < lengthof(answered); i++)
	{
		if (strcmp(name, answered[i]) == 0)
			return answered[i];
	}
	return NULL;
}

/* Does a comma stand in the parentheses that open here?  Then a call gives bounds, too. */
static bool
has_bounds(const char *from)
{
	int			depth = 0;

	if (*from != '(')
		return false;
	for (; *from; from++)
	{
		if (*from == '(')
			depth++;
		else if (*from == ')' && --depth == 0)
			return false;
		else if (*from == ',' && depth == 1)
			return true;
	}
	return false;
}

/*
 * What is said of private aggregates, for somebody who asked over exposed views:
 * count(*) for dp_count(*).  A call of ours takes dp_count only, and so do calls
 * with bounds.
 */
char *
in_ordinary_words(const char *text)
{
	char	   *result = palloc(strlen(text) + 1);
	char	   *to = result;
	bool		inside = false;

	for (const char *from = text; *from;)
	{
		const char *end = from;
		const char *name;

		while (isalnum((unsigned char) *end) || *end == '_')
			end++;
		if (end == from)
		{
			*to++ = *from++;
			continue;
		}
		name = ordinary_name(pnstrdup(from, end - from));
		inside = inside || (strncmp(from, "dp.", 3) == 0);
		if (name && !inside && !has_bounds(end))
			to = stpcpy(to, name);
		else
		{
			memcpy(to, from, end - from);
			to += end - from;
		}
		from = end;
	}
	*to = '\0';
	return result;
}
