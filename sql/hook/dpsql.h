/*
 * dpsql.h
 *		What the files of the module share.
 */
#ifndef DPSQL_H
#define DPSQL_H

#include "postgres.h"

#include "fmgr.h"
#include "nodes/parsenodes.h"
#include "nodes/primnodes.h"
#include "parser/parse_node.h"
#include "utils/array.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"

#define DPSQL_EXTENSION "dpsql"
#define DPSQL_SCHEMA "dp"
#define DPSQL_VIEW_SCHEMA "dpv"

/* SQLSTATE class PD, as in dpsql/errors.py */
#define ERRCODE_DPSQL_NO_BUDGET MAKE_SQLSTATE('P', 'D', '0', '0', '2')
#define ERRCODE_DPSQL_NOT_ANSWERABLE MAKE_SQLSTATE('P', 'D', '0', '1', '0')
#define ERRCODE_DPSQL_UNSUPPORTED MAKE_SQLSTATE('P', 'D', '0', '1', '1')
#define ERRCODE_DPSQL_UNDECLARED MAKE_SQLSTATE('P', 'D', '0', '1', '2')
#define ERRCODE_DPSQL_FUNCTION MAKE_SQLSTATE('P', 'D', '0', '1', '3')
#define ERRCODE_DPSQL_SYNTAX MAKE_SQLSTATE('P', 'D', '0', '1', '4')
#define ERRCODE_DPSQL_CHANGED MAKE_SQLSTATE('P', 'D', '0', '1', '5')
#define ERRCODE_DPSQL_VERSION MAKE_SQLSTATE('P', 'D', '0', '3', '0')
#define ERRCODE_DPSQL_PARAMETER MAKE_SQLSTATE('P', 'D', '0', '4', '0')
#define ERRCODE_DPSQL_SHARD MAKE_SQLSTATE('P', 'D', '0', '5', '2')
#define ERRCODE_DPSQL_PERMISSION MAKE_SQLSTATE('P', 'D', '0', '7', '0')
#define ERRCODE_DPSQL_NOT_INTERCEPTED MAKE_SQLSTATE('P', 'D', '0', '6', '0')

/* settings.c */
enum
{
	REFUSED_ROWS_ERROR,
	REFUSED_ROWS_NONE,
};
extern int	refused_rows;		/* setting */
extern void settings_init(void);

/* members.c: what belongs to the extension, by OID */
extern bool is_private_aggregate(Oid function);
extern bool is_interval_end(Oid function);
extern void require_same_version(void);
extern Oid	member_function(const char *name, int nargs, const Oid *types);

/* intercept.c and stored.c: the hooks */
extern void intercept_init(void);
extern void stored_init(void);
extern void executed_init(void);
extern void triggers_init(void);
extern bool executor_runs(void);

/* reads.c: the objects of an array */
extern Oid *objects_of(Datum objects, int *count);

/* shared.c: areas in shared memory, asked for at server start; start prepares one that is new */
typedef struct
{
	const char *name;
	Size		(*size) (void);
	void		(*start) (void *memory, bool found);
} SharedArea;
extern void share(SharedArea area);

/* version.c: which state of the catalogue and of declarations a snapshot shows */
extern void version_init(void);
extern void held_init(void);
extern uint64 catalogue_version(Snapshot snapshot);

/* exposed.c: the columns of a relation that a view of the schema dpv shows, in the view's order */
typedef struct
{
	Oid			view;
	Oid			relation;		/* InvalidOid: the view is no exposed one, or has a problem */
	const char *const *problem; /* message, detail and hint, where its columns changed */
	AttrNumber *columns;
	int			count;
} Exposed;
extern bool is_dpv_view(Oid relation);
extern const Exposed *exposed_by(List **known, RangeTblEntry *rte);
extern Query *exposed_selection(const Exposed *exposed);

/* counterparts.c: private aggregates in the place of PostgreSQL's own */
extern Oid	private_counterpart(Oid aggregate);
extern bool make_private_aggregate(Aggref *aggregate);
extern const char *ordinary_name(const char *word);
extern char *in_ordinary_words(const char *text);

/* translate.c: ordinary SQL over exposed views becomes private questions */
extern void translate_exposed(ParseState *pstate, Node *statement, bool top);

/* prune.c: columns of sub-queries that nobody reads */
extern void prune_unread(Query *query);
/* around.c: window functions and joins with answers go around the question */
extern bool put_around(Query *query);

/* denied.c: hints for who wants rows of protected relations */
extern void denied_init(void);

/* seen.c: what a transaction has seen of other servers */
extern void shards_init(void);

/* sent.c: what other servers can count is counted there */
extern void sent_init(void);

/* claims.c: hide unenforced NOT NULL and parallel bitmap scans from the planner */
extern void claims_init(void);
extern void locks_init(void);
/* dead_rows.c: what a question reads is not pruned by it */
extern void dead_rows_init(void);

/* before_locks.c: refuse before a relation is locked */
extern void before_locks_init(void);
extern void explain_init(void);

/* mask.c: what a role may not know reads as unknown */
extern void mask_init(void);

/* changes.c: the server's counters are off in this statement of the client */
extern void changes_pause(void);

/* progress.c: what long commands are doing */
extern void progress_init(void);
extern void progress_add_rounds(int64 more);
extern bool progress_is_shown(void);
extern void progress_clear(void);

/* refusals.c: how many statements were refused */
extern void refusals_init(void);

/* frames.c: contexts of refusals */
extern void frames_init(void);

/* preload.c: Python in the postmaster */
extern bool preload_python;		/* setting */
extern bool explain_buffers;	/* setting */
extern void preload_init(void);

/* in_time.c: how long a question waits for its servers */
extern int	shards_timeout;		/* setting, in milliseconds */

/* scope.c: may this query be taken out of the statement around it? */
extern bool holds_private_aggregate(Query *query, int *location);
extern void check_self_contained(ParseState *pstate, Query *query, int location);

/* operators.c: does it use operators that its printed form hides? */
extern void check_hidden_operators(ParseState *pstate, Query *query, int location);

/* locks.c: run a function and release the locks that it took */
extern void release_kept_locks(void);
extern bool may_be_read(Oid relation);
extern Datum call_apart(Datum (*work) (FunctionCallInfo), FunctionCallInfo fcinfo);
extern Datum invoke_function(FunctionCallInfo fcinfo);

/* held.c: hold back changes of the catalogue while relations are read */
extern void hold_catalogue(Relation relation);
extern void hold_vacuum(Relation relation, List *others);

/* triggers.c: who does not ask */
extern void require_no_foreign_key_action(void);

/* door.c: on whose behalf something runs */
typedef struct Caller Caller;
extern Oid	asking_role(void);
extern bool below_door(void);
extern Caller *forget_caller(void);
extern void remember_caller(Caller *caller);

/* stack.c: refuse questions when much of the stack is in use */
extern void require_stack(void);

/* rows.c: a two-dimensional array of texts as rows */
struct ReturnSetInfo;
extern bool wants_rows(struct ReturnSetInfo *caller);
extern void return_rows(struct ReturnSetInfo *caller, ArrayType *rows);

/* aside.c: sub-queries that are read beside the question */
extern bool is_correlated(Query *query);
extern Query *put_aside(ParseState *pstate, Query *query, List **values);

/* replace.c */
extern void replace_query(ParseState *pstate, Query *query, int location);
extern bool asked_over_views(Node *call);

/* deparse.c */
extern int	pin_reading_settings(void);
extern void unpin_reading_settings(int nestlevel);
extern char *deparse_query(Query *query);
extern const char *const *text_array_values(ArrayType *array, int *count);
extern Query *analyse_text(const char *text, const char *const *parameters, int nparameters,
						   bool typed);

/* position.c: from the analysed statement to the one that a person wrote */
extern int	find_in_source(const char *analysed, int position, const char *source, int location,
						   bool conforming, bool ordinary);

extern char *words_there(const char *text, int position);

/* analyze.c */
extern bool is_analysing(void);

/* executed.c */
extern void require_no_checks(ParseState *pstate, Oid type, int location);

/* inventory_json.c: what an analysed query uses */
extern char *inventory_json(Query *query, const char *sql);

#endif							/* DPSQL_H */
