/*
 * shards.h
 *		What shards.c and reached.c share.
 */
#ifndef DPSQL_SHARDS_H
#define DPSQL_SHARDS_H

#include "nodes/pg_list.h"

/* One part on another server. */
typedef struct
{
	Oid			relation;
	Oid			server;
	Oid			mapping;
	bool		first;			/* of its server */
} Part;

/* reached.c */
extern Oid	user_mapping(Oid user, Oid server);
extern List *oids_of(Datum array);
extern List *with_parts(List *relations);
extern List *foreign_parts(List *relations);
extern bool reached(Part *part, bool connect_only);
extern void require_reached(Part *part, bool connect_only);

/* shards.c */
extern bool shards_quiet(bool quiet);

#endif
