/*
 * commits.c
 *		dp.may_commit(): whether the procedure that asks can commit.
 *
 * PL/pgSQL itself can only try: a COMMIT that fails says neither why nor what
 * to do, and comes after what was to be committed.
 */
#include "postgres.h"

#include "executor/spi.h"
#include "fmgr.h"

PG_FUNCTION_INFO_V1(dpsql_may_commit);

Datum
dpsql_may_commit(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(SPI_inside_nonatomic_context());
}
