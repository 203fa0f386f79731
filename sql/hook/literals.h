/*
 * literals.h
 *		String literals of a text while it is analysed (literals.c).
 */
#ifndef DPSQL_LITERALS_H
#define DPSQL_LITERALS_H

#include "nodes/bitmapset.h"
#include "parser/parse_node.h"
#include "utils/hsearch.h"

typedef struct
{
	List	   *texts;			/* char *; parameter -n stands for the n-th */
	HTAB	   *numbers;		/* of texts, by hash value */
	Bitmapset  *places;			/* where strings were found: byte offset + 1 */
	List	   *kept;			/* A_Const nodes that are not replaced */
	bool		in_type;		/* the walk is in the name of a type, where none is replaced */
} Strings;

extern void take_strings(Strings *strings, Node *raw);
extern void require_all_taken(Strings *strings, const char *text);
extern Node *string_parameter(ParamRef *reference);
extern Node *string_value(Strings *strings, ParseState *pstate, Param *param, Oid type,
						  int32 modifier);
extern Query *put_strings_back(Strings *strings, Query *query);

#endif							/* DPSQL_LITERALS_H */
