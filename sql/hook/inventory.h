/*
 * inventory.h
 *		What an analysed query uses: collected in inventory.c, written in
 *		inventory_json.c.
 */
#ifndef DPSQL_INVENTORY_H
#define DPSQL_INVENTORY_H

#include "postgres.h"

#include "nodes/parsenodes.h"

/* the construct that says that arguments disagree about the collation */
#define INDETERMINATE_COLLATION "indeterminate collation"

typedef struct Inventory
{
	List	   *relations;		/* OIDs, each once, as the lists below */
	List	   *functions;
	List	   *types;
	List	   *made;			/* types of values other than columns */
	List	   *collations;
	List	   *domains;
	List	   *operators;		/* OIDs, collation beside it in the next list */
	List	   *operator_collations;
	List	   *constructs;		/* names (char *) */
	List	   *sqlvalues;		/* names (char *) */
	bool		viaio;
	bool		grouping_sets;
	bool		for_update;
	bool		target_srfs;
	bool		set_operations;
} Inventory;

extern void take_inventory(Query *query, Inventory *inventory);

#endif							/* DPSQL_INVENTORY_H */
