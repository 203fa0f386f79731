/*
 * translate.h
 *		What translate.c and through.c share.
 */
#ifndef DPSQL_TRANSLATE_H
#define DPSQL_TRANSLATE_H

#include "nodes/parsenodes.h"
#include "parser/parse_node.h"

/* A query and those around it, outwards. */
typedef struct Level
{
	Query	   *query;
	struct Level *outer;
} Level;

typedef struct
{
	ParseState *pstate;			/* for error positions */
	List	  **known;			/* exposed views that were looked up so far */
	List	  **passing;		/* views of others that were looked up so far */
	Level	   *level;			/* of what is looked at */
	int			depth;			/* queries between it and the one that is translated */
	bool		found;			/* an aggregate of that one */
	bool		copied;			/* what is looked at was copied out of a WITH query */
} Translation;

/* through.c */
extern bool combines_rows(Query *query);
extern bool is_probe(Query *query);
extern bool reads_exposed(Translation *translation, Query *query, Level *outer);
extern CommonTableExpr *with_query(RangeTblEntry *rte, Level *level, Level **owner);
extern Query *passing_view(Translation *translation, RangeTblEntry *rte);

#endif
