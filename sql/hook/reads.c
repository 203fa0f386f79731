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

/* A token with all that it is a function of, while no transaction ended. */
static struct
{
	char	   *text;			/* NULL: none is kept */
	Oid		   *objects;
	int			count;
	TransactionId xmin;
	TransactionId xmax;
	TransactionId *running;		/* in progress: transactions, then subtransactions */
	uint32		xcnt;
	int32		subxcnt;
} kept;

/*
 * Whether a snapshot shows all that the kept token's snapshot shows, and
 * nothing else: each transaction that has ended since, and had changed
 * anything, has left the ones in progress or has moved xmax.  That holds for
 * what is read through the snapshot only, so nothing else is in what is kept.
 */
static bool
same_state(Snapshot snapshot)
{
	return kept.text != NULL && !snapshot->takenDuringRecovery &&
		snapshot->snapshot_type == SNAPSHOT_MVCC &&
		!snapshot->suboverflowed &&
		!TransactionIdIsValid(GetTopTransactionIdIfAny()) &&
		snapshot->xmin == kept.xmin && snapshot->xmax == kept.xmax &&
		snapshot->xcnt == kept.xcnt && snapshot->subxcnt == kept.subxcnt &&
		memcmp(snapshot->xip, kept.running, kept.xcnt * sizeof(TransactionId)) == 0 &&
		memcmp(snapshot->subxip, kept.running + kept.xcnt,
			   kept.subxcnt * sizeof(TransactionId)) == 0;
}

static void
keep_token(Snapshot snapshot, const Oid *objects, int count, const char *text)
{
	MemoryContext context = MemoryContextSwitchTo(TopMemoryContext);
	int			total = snapshot->xcnt + snapshot->subxcnt;

	if (kept.text != NULL)
	{
		pfree(kept.text);
		kept.text = NULL;
		pfree(kept.objects);
		pfree(kept.running);
	}
	/* what the transaction itself changed does not show in the snapshot */
	if (snapshot->snapshot_type == SNAPSHOT_MVCC && !snapshot->suboverflowed &&
		!snapshot->takenDuringRecovery && !TransactionIdIsValid(GetTopTransactionIdIfAny()))
	{
		char	   *copy = pstrdup(text);

		kept.objects = palloc((count + 1) * sizeof(Oid));
		memcpy(kept.objects, objects, count * sizeof(Oid));
		kept.running = palloc((total + 1) * sizeof(TransactionId));
		memcpy(kept.running, snapshot->xip, snapshot->xcnt * sizeof(TransactionId));
		memcpy(kept.running + snapshot->xcnt, snapshot->subxip,
			   snapshot->subxcnt * sizeof(TransactionId));
		kept.count = count;
		kept.xmin = snapshot->xmin;
		kept.xmax = snapshot->xmax;
		kept.xcnt = snapshot->xcnt;
		kept.subxcnt = snapshot->subxcnt;
		kept.text = copy;
	}
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

/* What dp.fingerprint_text tells under a snapshot. */
char *
declared_state(Datum objects, const Oid *oids, int count, Snapshot snapshot)
{
	static SPIPlanPtr plan = NULL;
	MemoryContext context = CurrentMemoryContext;
	Oid			type = OIDARRAYOID;
	char	   *text;

	if (same_state(snapshot) && kept.count == count &&
		memcmp(oids, kept.objects, count * sizeof(Oid)) == 0)
		return pstrdup(kept.text);
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
	keep_token(snapshot, oids, count, text);
	SPI_finish();
	return text;
}

/* The whole token: with what may be read as of now. */
Datum
declared_token(const char *text, const Oid *oids, int count)
{
	StringInfoData token;

	initStringInfo(&token);
	appendStringInfoString(&token, text);
	append_privileges(&token, oids, count);
	return PointerGetDatum(cstring_to_text_with_len(token.data, token.len));
}

static Datum
fingerprint(Datum objects, Snapshot snapshot)
{
	int			count;
	Oid		   *oids = objects_of(objects, &count);

	return declared_token(declared_state(objects, oids, count, snapshot), oids, count);
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
