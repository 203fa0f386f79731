/*
 * preload.c
 *		Import Python once, in the postmaster, instead of once a session.
 *
 * A new session spends about 0.35 s on starting the interpreter and importing
 * the package, more than most answers take.  A library that is loaded at
 * server start can do it for all: backends inherit the modules by fork().
 *
 * Nothing that is imported may keep a thread, a connection or random bits; the
 * noise source throws away what it finds after a fork.  An import that fails
 * is a line in the log, and sessions import for themselves, as they do without
 * this.  The module is not linked to libpython: its functions are looked up
 * once PL/Python has brought them, so a server without PL/Python starts too.
 *
 * PL/Python of 18 starts the interpreter when it is loaded; before, it does so
 * at the first call, after it has registered its module plpy.  That is allowed
 * with a running interpreter up to Python 3.11 and ends the process from 3.12
 * on, so there each session goes on importing for itself.
 */
#include "postgres.h"

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include "fmgr.h"
#include "miscadmin.h"

#include "dpsql.h"
#include "places.h"

/* What is used of libpython's stable interface. */
static int	(*is_initialized) (void);
static void (*initialize) (int install_signal_handlers);
static const char *(*get_version) (void);
static int	(*append_module) (const char *name, void *(*init) (void));
static int	(*run_string) (const char *text, void *flags);
static void (*after_fork) (void);

static void *(*init_plpy) (void);

/*
 * Tell the interpreter that it woke up in another process: it makes its locks
 * anew and, above all, reseeds the generators that other PL/Python code of the
 * server may use.
 *
 * PL/Python imports its module plpy at its first use in a session, so this is
 * the moment; sessions and workers that use no Python pay nothing.
 */
static void *
init_plpy_after_fork(void)
{
	if (IsUnderPostmaster)
		after_fork();
	return init_plpy();
}

/* Where PL/Python has imported plpy already: at every fork of the postmaster. */
static void
in_child(void)
{
	if (!IsUnderPostmaster)
		after_fork();
}

/* Bring in PL/Python and with it the interpreter, or say why not. */
static bool
load_language(void)
{
	MemoryContext context = CurrentMemoryContext;
	volatile bool loaded = false;

	PG_TRY();
	{
		load_file("$libdir/plpython3", false);
		loaded = true;
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		ereport(LOG,
				(errmsg("dpsql imports Python in each session: %s", error->message)));
		FreeErrorData(error);
	}
	PG_END_TRY();
	return loaded;
}

static bool
find_libpython(void)
{
	is_initialized = (int (*) (void)) dlsym(RTLD_DEFAULT, "Py_IsInitialized");
	initialize = (void (*) (int)) dlsym(RTLD_DEFAULT, "Py_InitializeEx");
	get_version = (const char *(*) (void)) dlsym(RTLD_DEFAULT, "Py_GetVersion");
	append_module = (int (*) (const char *, void *(*) (void)))
		dlsym(RTLD_DEFAULT, "PyImport_AppendInittab");
	run_string = (int (*) (const char *, void *)) dlsym(RTLD_DEFAULT, "PyRun_SimpleStringFlags");
	after_fork = (void (*) (void)) dlsym(RTLD_DEFAULT, "PyOS_AfterFork_Child");
	return is_initialized && initialize && get_version && append_module && run_string &&
		after_fork;
}

/* Start the interpreter unless PL/Python did or would take it amiss. */
static bool
start_interpreter(void)
{
	if (is_initialized())
		return pthread_atfork(NULL, NULL, in_child) == 0;
	init_plpy = (void *(*) (void)) dlsym(RTLD_DEFAULT, "PyInit_plpy");
	if (strncmp(get_version(), "3.", 2) != 0 || atoi(get_version() + 2) >= 12 ||
		init_plpy == NULL || append_module("plpy", init_plpy_after_fork) != 0)
		return false;
	initialize(0);				/* the postmaster's signals are its own */
	return true;
}

/* Do it all; returns NULL or the reason why sessions do it. */
static const char *
import_package(void)
{
	if (!find_libpython())
		return "libpython is out of sight";
	if (!start_interpreter())
		return "PL/Python cannot share an interpreter of this version";
	if (run_string(DPSQL_PYTHON_IMPORTS, NULL) != 0)
		return "the import at server start failed";
	return NULL;
}

void
preload_init(void)
{
	const char *problem;

	/* a bootstrap, a single-user server and pg_upgrade serve no sessions */
	if (!preload_python || IsUnderPostmaster || !IsPostmasterEnvironment || IsBinaryUpgrade)
		return;
	if (!load_language())
		return;
	problem = import_package();
	if (problem != NULL)
		ereport(LOG,
				(errmsg("dpsql imports Python in each session: %s", problem)));
}
