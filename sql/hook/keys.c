/*
 * keys.c
 *		dp.keys_made(command): the constraints that a statement makes.
 *
 * An event trigger sees commands as what the server noted of them, which SQL
 * cannot read.  What ALTER TABLE makes anew because a column changed its type,
 * and what it renames or validates, was there before: that is not in the list.
 * Nor is what a partition takes over from its parent.
 */
#include "postgres.h"

#include "catalog/pg_constraint.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "tcop/deparse_utility.h"
#include "utils/array.h"

#include "compat.h"

PG_FUNCTION_INFO_V1(dpsql_keys_made);

Datum
dpsql_keys_made(PG_FUNCTION_ARGS)
{
	CollectedCommand *command = (CollectedCommand *) PG_GETARG_POINTER(0);
	ArrayBuildState *found = initArrayResult(OIDOID, CurrentMemoryContext, false);
	ListCell   *lc;

	if (command->type == SCT_AlterTable)
	{
		foreach(lc, command->d.alterTable.subcmds)
		{
			CollectedATSubcmd *part = (CollectedATSubcmd *) lfirst(lc);

			if (IsA(part->parsetree, AlterTableCmd) &&
				compat_adds_constraint(((AlterTableCmd *) part->parsetree)->subtype) &&
				part->address.classId == ConstraintRelationId)
				found = accumArrayResult(found, ObjectIdGetDatum(part->address.objectId), false,
										 OIDOID, CurrentMemoryContext);
		}
	}
	PG_RETURN_DATUM(makeArrayResult(found, CurrentMemoryContext));
}
