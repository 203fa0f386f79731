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

/* How a server is asked for no row. */
typedef enum
{
	PROBE_CONNECT,				/* connects and begins a transaction there */
	PROBE_READ,					/* finds out whether all columns can be read */
	PROBE_SNAPSHOT				/* the same; an error if that takes no snapshot there */
} Probe;

/* reached.c */
extern Oid	user_mapping(Oid user, Oid server);
extern List *oids_of(Datum array);
extern List *with_parts(List *relations);
extern List *foreign_parts(List *relations);
extern bool reached(Part *part, Probe how);
extern void require_reached(Part *part, Probe how);

/* shards.c */
extern bool shards_quiet(bool quiet);

#endif
