/*
 * shards.h
 *		What shards.c, seen.c, reached.c and in_time.c share.
 */
#ifndef DPSQL_SHARDS_H
#define DPSQL_SHARDS_H

#include "nodes/pg_list.h"
#include "utils/snapshot.h"

/* One part on another server. */
typedef struct
{
	Oid			relation;
	Oid			server;
	Oid			mapping;
	bool		first;			/* of its server */
	int64		spent;			/* microseconds that its server took, the last time it was asked */
} Part;

/* What one transaction has of other servers. */
typedef struct
{
	List	   *read;			/* user mappings with a snapshot of any moment */
	List	   *met;			/* those with a snapshot of the common moment */
	List	   *relations;		/* which were locked then */
	Snapshot	snapshot;		/* of that moment, here; NULL: there is none */
	bool		lost;			/* a connection may not be that of the moment any more */
} Seen;

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

/* seen.c */
extern Seen shards;
extern void remember(List **list, Oid oid);
extern bool shards_quiet(bool now);

#endif
