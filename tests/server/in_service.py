"""Python that a test runs in the service session of its connection: patches, and what they saw.

A superuser's session asks a question that begins with `MARK`, and the test's version of
``dp.python_serve`` runs its text as the body of a function, with ``plpy`` and ``GD``.  That session
is not ended when idle from then on: a new one would not be patched.
"""

from __future__ import annotations

from textwrap import dedent

MARK = "#python"
_RUN = f'''
if query and query.startswith("{MARK}"):
    import textwrap
    names = dict(plpy=plpy, GD=GD)
    exec("def body():\\n" + textwrap.indent(query, "    ") + "\\n    return None", names)
    found = names["body"]()
    plpy.execute("select set_config(name, '0', false) from pg_settings"
                 " where name = 'idle_session_timeout' and setting = '60000'")
    return ([[None if found is None else str(found)]],)
'''
_INSTALL = f"""
  if not (select prosrc like '%{MARK}%' from pg_proc where oid = 'dp.python_serve'::regproc) then
    execute replace(pg_get_functiondef('dp.python_serve'::regproc),
                    'AS $procedure$', 'AS $procedure$' || $run${_RUN}$run$);
    commit;  -- the service session reads what is committed
  end if;"""


def value_in_service(code: str) -> str:
    """Return an expression of SQL: what ``code``, a function's body, returns there, as text."""
    return f"(select x from dp.run($python${MARK}\n{dedent(code)}$python$, null) as (x text))"


def in_service(code: str) -> str:
    """Return a statement that runs ``code`` there; for a superuser outside of a transaction."""
    return f"do $do$ begin {_INSTALL}\n  perform {value_in_service(code)};\nend $do$"


def everywhere(code: str) -> str:
    """Return a statement that runs ``code`` there and in the backend itself, which plans releases.

    The backend gets the path of the package first, as a function of the extension does it.
    """
    boot = """
source = plpy.execute("select prosrc from pg_proc where oid = 'dp.python_purge_answers()'::regprocedure")
names = dict(plpy=plpy, GD=GD)
exec(source[0]["prosrc"].rpartition("return ")[0], names)
"""
    return in_service(code).removesuffix("end $do$") + (
        f"  execute $here$do language plpython3u $python2${boot}{dedent(code)}$python2$ $here$;\nend $do$"
    )


def function_in_service(name: str, kind: str, code: str) -> str:
    """Return a statement that makes a function of no arguments of ``code``, as above.

    ``kind`` is the type that it returns; for ``setof text`` the code returns texts as JSON.
    """
    value = value_in_service(code)
    if kind == "setof text":
        value = f"jsonb_array_elements_text({value}::jsonb)"
    return f"create function {name}() returns {kind} language sql as $sql$ select {value}::{kind.removeprefix('setof ')} $sql$"


def after_the_charge(conninfo: str, statement: str) -> str:
    """Return a statement that has ``statement`` run between each charge and its reading.

    ``conninfo`` says as whom; ``GD["after"]`` has for each charge whether the statement waited for
    the end of the reading, and was given up.
    """
    return in_service(
        f"""
        import psycopg
        import dpsql.server.spi as spi
        before = spi.SpiDatabase.meet
        GD["after"] = []
        def meet(self, *given, charged=False, **more):
            before(self, *given, charged=charged, **more)
            if charged:
                with psycopg.connect({conninfo!r}, autocommit=True) as other:
                    other.execute("set lock_timeout = '300ms'")
                    try:
                        other.execute({statement!r})
                        GD["after"].append(False)
                    except psycopg.errors.LockNotAvailable:
                        GD["after"].append(True)
        spi.SpiDatabase.meet = meet
        """
    )
