/*
 * reads.c
 *		Who reads, and whether what is read is still what was declared.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/snapmgr.h"

#include "compat.h"
#include "dpsql.h"

PG_FUNCTION_INFO_V1(dpsql_caller);
PG_FUNCTION_INFO_V1(dpsql_fingerprint);
PG_FUNCTION_INFO_V1(dpsql_fingerprint_now);

/* dp.caller() */
Datum
dpsql_caller(PG_FUNCTION_ARGS)
{
	PG_RETURN_OID(asking_role());
}

/* Tokens of sets of objects, all of one version. */
#define MOST_KEPT 64
static struct
{
	MemoryContext memory;
	uint64		version;
	int			count;
	struct
	{
		Oid		   *objects;
		int			count;
		char	   *text;
	}			tokens[MOST_KEPT];
} kept;

/* The token that is kept, or NULL. */
static const char *
kept_token(uint64 version, const Oid *oids, int count)
{
	for (int i = 0; kept.version == version && i < kept.count; i++)
	{
		if (kept.tokens[i].count == count &&
			memcmp(kept.tokens[i].objects, oids, count * sizeof(Oid)) == 0)
			return kept.tokens[i].text;
	}
	return NULL;
}

static void
keep_token(uint64 version, const Oid *oids, int count, const char *text)
{
	MemoryContext context;
	int			place;

	if (kept.memory == NULL)
		kept.memory = AllocSetContextCreate(TopMemoryContext, "dpsql tokens",
											ALLOCSET_DEFAULT_SIZES);
	if (kept.version != version || kept.count == MOST_KEPT)
	{
		kept.count = 0;
		MemoryContextReset(kept.memory);
		kept.version = version;
	}
	context = MemoryContextSwitchTo(kept.memory);
	place = kept.count;
	kept.tokens[place].objects = palloc((count + 1) * sizeof(Oid));
	memcpy(kept.tokens[place].objects, oids, count * sizeof(Oid));
	kept.tokens[place].count = count;
	kept.tokens[place].text = pstrdup(text);
	kept.count++;
	MemoryContextSwitchTo(context);
}

/*
 * What may have changed after an old snapshot, and takes away what it shows:
 * whether dp_executor may use the schemas of the relations, as of now.
 */
static void
append_privileges(StringInfo token, const Oid *oids, int count)
{
	Oid			executor;
	Oid			last = InvalidOid;

	AcceptInvalidationMessages();
	executor = get_role_oid("dp_executor", true);
	for (int i = 0; i < count; i++)
	{
		Oid			schema = OidIsValid(oids[i]) ? get_rel_namespace(oids[i]) : InvalidOid;

		if (!OidIsValid(schema) || schema == last)
			continue;
		last = schema;
		appendStringInfo(token, "|%u:%c", schema,
						 OidIsValid(executor) && compat_may_use(schema, executor) ? 't' : 'f');
	}
}

/* The objects of an array; the number of a null is 0. */
Oid *
objects_of(Datum objects, int *count)
{
	Datum	   *values;
	bool	   *nulls;
	Oid		   *oids;

	deconstruct_array(DatumGetArrayTypeP(objects), OIDOID, sizeof(Oid), true, TYPALIGN_INT,
					  &values, &nulls, count);
	oids = palloc((*count + 1) * sizeof(Oid));
	for (int i = 0; i < *count; i++)
		oids[i] = nulls[i] ? InvalidOid : DatumGetObjectId(values[i]);
	return oids;
}

/*
 * What dp.fingerprint_text tells under a snapshot.  It is the same for all
 * snapshots of a version, as it reads through the snapshot only.
 */
static const char *
declared_state(Datum objects, const Oid *oids, int count, Snapshot snapshot)
{
	static SPIPlanPtr plan = NULL;
	MemoryContext context = CurrentMemoryContext;
	Oid			type = OIDARRAYOID;
	uint64		version = catalogue_version(snapshot);
	const char *known = version ? kept_token(version, oids, count) : NULL;
	char	   *text;

	if (known != NULL)
		return known;
	SPI_connect();
	if (plan == NULL)
	{
		SPIPlanPtr	made = SPI_prepare("select dp.fingerprint_text($1)", 1, &type);

		if (made == NULL || SPI_keepplan(made) != 0)
			elog(ERROR, "dp.fingerprint_text cannot be prepared");
		plan = made;
	}
	if (SPI_execute_snapshot(plan, &objects, NULL, snapshot, InvalidSnapshot, true, false,
							 1) != SPI_OK_SELECT || SPI_processed != 1)
		elog(ERROR, "dp.fingerprint_text gave no answer");
	text = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
	if (text == NULL)
		elog(ERROR, "dp.fingerprint_text gave no answer");
	text = MemoryContextStrdup(context, text);
	if (version)
		keep_token(version, oids, count, text);
	SPI_finish();
	return text;
}

static Datum
fingerprint(Datum objects, Snapshot snapshot)
{
	int			count;
	Oid		   *oids = objects_of(objects, &count);
	StringInfoData token;

	initStringInfo(&token);
	appendStringInfoString(&token, declared_state(objects, oids, count, snapshot));
	append_privileges(&token, oids, count);
	return PointerGetDatum(cstring_to_text_with_len(token.data, token.len));
}

/* dp.fingerprint(objects oid[]): as of the caller's snapshot */
Datum
dpsql_fingerprint(PG_FUNCTION_ARGS)
{
	return fingerprint(PG_GETARG_DATUM(0), GetActiveSnapshot());
}

/*
 * dp.fingerprint_now(objects oid[]): as of a snapshot taken now, also where
 * the transaction keeps an older one.
 */
Datum
dpsql_fingerprint_now(PG_FUNCTION_ARGS)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	Datum		token = fingerprint(PG_GETARG_DATUM(0), snapshot);

	UnregisterSnapshot(snapshot);
	return token;
}
