/*
 * lookups.c
 *		What rows may make a session look up is in its caches before the first
 *		row, or gone after the last one.
 *
 * A backend keeps what it looked up in catalogs.  Whoever asks can count the
 * buffers that the next lookup takes (EXPLAIN), and would learn whether a row
 * made the same lookup before: which label of an enum a value has, whether a
 * value was stored out of line, or whether any row was compared at all.
 *
 * Caches that can be emptied (system caches, labels of enums) are emptied when
 * reading has ended.  Those that cannot (open relations and indexes, operators
 * of types, collations) are filled before reading begins.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_amop.h"
#include "catalog/pg_enum.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "utils/catcache.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "compat.h"
#include "dpsql.h"

PG_FUNCTION_INFO_V1(dpsql_forget_lookups);

/* All that operators, hash functions and aggregates ask of the cache of types. */
#define ALL_OF_TYPE \
	(TYPECACHE_EQ_OPR | TYPECACHE_LT_OPR | TYPECACHE_GT_OPR | TYPECACHE_CMP_PROC | TYPECACHE_HASH_PROC | \
	 TYPECACHE_EQ_OPR_FINFO | TYPECACHE_CMP_PROC_FINFO | TYPECACHE_HASH_PROC_FINFO | \
	 TYPECACHE_BTREE_OPFAMILY | TYPECACHE_HASH_OPFAMILY | \
	 TYPECACHE_HASH_EXTENDED_PROC | TYPECACHE_HASH_EXTENDED_PROC_FINFO)

/* PostgreSQL's own types of values that questions may compute with. */
static const Oid computed[] = {
	BOOLOID, BYTEAOID, CHAROID, NAMEOID, INT8OID, INT2OID, INT4OID, TEXTOID, OIDOID, JSONBOID,
	FLOAT4OID, FLOAT8OID, MONEYOID, MACADDROID, INETOID, BPCHAROID, VARCHAROID, DATEOID, TIMEOID,
	TIMESTAMPOID, TIMESTAMPTZOID, INTERVALOID, TIMETZOID, BITOID, VARBITOID, NUMERICOID, UUIDOID
};

/* Enums of columns that were read, whose labels are forgotten; in TopMemoryContext. */
static List *enums = NIL;
static bool reading = false;

/* All labels, since the number of entries decides when a system cache grows. */
static void
look_up_labels(Oid type)
{
	CatCList   *labels = SearchSysCacheList1(ENUMTYPOIDNAME, ObjectIdGetDatum(type));

	for (int i = 0; i < labels->n_members; i++)
	{
		Form_pg_enum label = (Form_pg_enum) GETSTRUCT(&labels->members[i]->tuple);

		SearchSysCacheExists1(ENUMOID, ObjectIdGetDatum(label->oid));
	}
	ReleaseSysCacheList(labels);
}

static void
look_up_type(Oid type)
{
	Oid			base = getBaseType(type);
	Oid			element = get_base_element_type(base);

	lookup_type_cache(base, ALL_OF_TYPE);
	if (OidIsValid(element))
		look_up_type(element);
	else if (get_typtype(base) == TYPTYPE_ENUM)
	{
		MemoryContext context = MemoryContextSwitchTo(TopMemoryContext);

		enums = list_append_unique_oid(enums, base);
		MemoryContextSwitchTo(context);
		look_up_labels(base);
	}
}

/* Fill the caches for the types of a relation's columns. */
void
look_up_types(Relation relation)
{
	for (int i = 0; i < relation->rd_att->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(relation->rd_att, i);

		if (!column->attisdropped)
			look_up_type(column->atttypid);
	}
}

/* Fill the caches that no relation decides.  Keys that do not exist make each index read its first pages. */
void
look_up_before_rows(void)
{
	NameData	nothing = {{0}};
	Datum		zero = ObjectIdGetDatum(InvalidOid);

	reading = true;
	SearchSysCacheExists1(TYPEOID, zero);
	SearchSysCacheExists1(PROCOID, zero);
	SearchSysCacheExists1(OPEROID, zero);
	SearchSysCacheExists1(CLAOID, zero);
	SearchSysCacheExists1(OPFAMILYOID, zero);
	SearchSysCacheExists1(COLLOID, zero);
	SearchSysCacheExists1(ENUMOID, zero);
	SearchSysCacheExists1(RANGETYPE, zero);
	SearchSysCacheExists1(INDEXRELID, zero);
	SearchSysCacheExists2(ENUMTYPOIDNAME, zero, NameGetDatum(&nothing));
	SearchSysCacheExists2(CASTSOURCETARGET, zero, zero);
	SearchSysCacheExists3(AMOPOPID, zero, CharGetDatum(AMOP_SEARCH), zero);
	SearchSysCacheExists4(AMOPSTRATEGY, zero, zero, zero, Int16GetDatum(0));
	SearchSysCacheExists4(AMPROCNUM, zero, zero, zero, Int16GetDatum(0));
	for (int i = 0; i < lengthof(computed); i++)
	{
		Oid			array = get_array_type(computed[i]);

		lookup_type_cache(computed[i], ALL_OF_TYPE);
		if (OidIsValid(array))
			lookup_type_cache(array, ALL_OF_TYPE);
	}
}

/* Fill the cache of a collation that a statement uses. */
void
look_up_collation(Oid collation)
{
	if (OidIsValid(collation))
		compat_look_up_collation(collation);
}

/* Empty the caches that rows may have filled.  Does nothing if none were read. */
void
forget_lookups(void)
{
	ListCell   *cell;

	if (!reading)
		return;
	reading = false;
	foreach(cell, enums)
	{
		TypeCacheEntry *type = lookup_type_cache(lfirst_oid(cell), 0);

		if (type->enumData != NULL)
			pfree(type->enumData);
		type->enumData = NULL;
	}
	list_free(enums);
	enums = NIL;
	ResetCatalogCaches();
}

/* dp.forget_lookups() */
Datum
dpsql_forget_lookups(PG_FUNCTION_ARGS)
{
	forget_lookups();
	PG_RETURN_VOID();
}
