/*
 * shards.h
 *		What shards.c, reached.c and in_time.c share.
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
	int64		spent;			/* microseconds that its server took, the last time it was asked */
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
extern void refuse_late(List *parts);
extern void require_reached(List *parts, Part *part);
extern void require_reached_in_time(Part *part, Probe how);
extern bool reached_in_time(Part *part);

/* in_time.c */
extern void in_time(void (*work) (void *), void (*complain) (void *), void *argument);
extern bool time_is_up(void);
extern char *time_allowed(void);
extern void holding(List *relations, void (*work) (void *), void *argument);
extern void let_go(void);

/* shards.c */
extern bool shards_quiet(bool quiet);

#endif
