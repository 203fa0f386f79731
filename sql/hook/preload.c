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
 * PL/Python registers its module plpy at its first call in a session, and
 * Python from 3.12 on ends a process that registers a module while the
 * interpreter runs.  The library therefore registers plpy before it starts the
 * interpreter, and PL/Python finds the function PyImport_AppendInittab below in
 * place of Python's: the server puts the names of this library, which it loads
 * first, before those of libpython.
 */
#include "postgres.h"

#include <dlfcn.h>
#include <unistd.h>

#include "fmgr.h"
#include "miscadmin.h"

#include "dpsql.h"
#include "places.h"

/* What is used of libpython's stable interface. */
static int	(*is_initialized) (void);
static void (*initialize) (int install_signal_handlers);
static int	(*run_string) (const char *text, void *flags);
static void (*before_fork) (void);
static void (*after_fork) (void);

static bool registered = false;

extern PGDLLEXPORT int PyImport_AppendInittab(const char *name, void *(*init) (void));

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

/* Call Python's own PyImport_AppendInittab, which the one below replaces. */
static int
append_module(const char *name, void *(*init) (void))
{
	Dl_info		python;
	void	   *any = dlsym(RTLD_DEFAULT, "Py_IsInitialized");
	void	   *library = any != NULL && dladdr(any, &python) != 0
		? dlopen(python.dli_fname, RTLD_NOW | RTLD_NOLOAD) : NULL;
	int			(*append) (const char *, void *(*) (void)) = library == NULL ? NULL
		: (int (*) (const char *, void *(*) (void))) dlsym(library, "PyImport_AppendInittab");

	return append == NULL ? -1 : append(name, init);
}

/*
 * PL/Python calls this at its first use in a session.  Since plpy is registered
 * already, it only tells the interpreter that it now runs in a forked process:
 * the interpreter makes its locks anew and reseeds its random generators, which
 * other PL/Python code of the server may use.  Sessions and workers without
 * Python do no work.
 */
int
PyImport_AppendInittab(const char *name, void *(*init) (void))
{
	if (!registered || strcmp(name, "plpy") != 0)
		return append_module(name, init);
	if (IsUnderPostmaster)
	{
		before_fork();			/* takes the locks that after_fork makes anew; none is held */
		after_fork();
	}
	return 0;
}

static bool
find_libpython(void)
{
	is_initialized = (int (*) (void)) dlsym(RTLD_DEFAULT, "Py_IsInitialized");
	initialize = (void (*) (int)) dlsym(RTLD_DEFAULT, "Py_InitializeEx");
	run_string = (int (*) (const char *, void *)) dlsym(RTLD_DEFAULT, "PyRun_SimpleStringFlags");
	before_fork = (void (*) (void)) dlsym(RTLD_DEFAULT, "PyOS_BeforeFork");
	after_fork = (void (*) (void)) dlsym(RTLD_DEFAULT, "PyOS_AfterFork_Child");
	return is_initialized && initialize && run_string && before_fork && after_fork;
}

/* Start the interpreter, with PL/Python's module in it. */
static bool
start_interpreter(void)
{
	void	   *(*init) (void) = (void *(*) (void)) dlsym(RTLD_DEFAULT, "PyInit_plpy");

	registered = !is_initialized() && init != NULL && append_module("plpy", init) == 0;
	if (registered)
		initialize(0);			/* the postmaster's signals are its own */
	return registered;
}

/* Do it all; returns NULL or the reason why sessions do it. */
static const char *
import_package(void)
{
	if (!find_libpython())
		return "libpython is out of sight";
	if (!start_interpreter())
		return "Python was started before the library was loaded";
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
