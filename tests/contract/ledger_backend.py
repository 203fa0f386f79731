"""Ask the ledger from inside a backend, as dp.run does, but without a query to answer."""

from __future__ import annotations

from typing import Any

from dpsql.client.layout import Layout, site_packages

# A question costs epsilon 1; its "answer" is a text that no two computations share.  While it is
# computed, the name of the session's application says so.
ASK = """
create schema probe;
grant usage on schema probe to public;
create function probe.ask(question text, root integer, seconds float8 default 0,
                          fresh boolean default false)
returns text language plpython3u security definer as $$
    import os, sys, time
    if "probe" not in GD:
        sys.path[:0] = {paths!r}
        from dpsql.ledger.connection import LedgerConnection
        from dpsql.ledger.store import LedgerStore
        conninfo = plpy.execute(
            "select format('host=%s port=%s dbname=%s user=dp_ledger',"
            " current_setting('unix_socket_directories'), current_setting('port'),"
            " current_database()) as c")[0]["c"].replace('"', "")
        GD["probe"] = LedgerStore(LedgerConnection(conninfo, lambda: plpy.execute("select 1")))
    from fractions import Fraction
    from dpsql.errors import DpsqlError
    from dpsql.ledger.model import Charge, Hit
    store = GD["probe"]
    me = plpy.execute("select dp.caller()::int8 as oid, dp.caller()::regrole::text as name")[0]
    try:
        opened = store.open(Charge(
            role=me["oid"], role_name=me["name"], roots=(root,), epsilon=Fraction(1),
            delta=Fraction(0), mechanism="laplace", method="residual", label="proved",
            question=question, key=question.encode(), fresh=fresh))
        if isinstance(opened, Hit):
            return opened.payload
        try:
            plpy.execute("select set_config('application_name', 'computing', false)")
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                time.sleep(0.01)
                plpy.execute("select 1")
            plpy.execute("select set_config('application_name', '', false)")
            payload = os.urandom(8).hex()
        except BaseException:
            store.fail(opened)
            raise
        store.finish(opened, payload)
        return payload
    except DpsqlError as error:
        plpy.error(error.message, detail=error.detail, hint=error.hint, sqlstate=error.sqlstate)
$$;
"""

SETUP = """
create table public.secret (id integer);
select dp.protect('public.secret', delta => 0.5);
-- deaths are failures
select dp.set_failure_limit('public.secret', 1000);
select dp.grant_budget('alice', epsilon => 100);
select dp.grant_budget('bob', epsilon => 100);
"""


def install(database: Any) -> int:
    """Prepare a database for asking; return the root of its one protected relation."""
    connection = database.connect()
    paths = [str(Layout.discover().packages), str(site_packages())]
    connection.execute(ASK.format(paths=paths))
    connection.execute(SETUP)
    (root,) = connection.execute("select root from dp.policy").fetchone()
    return int(root)


def books(database: Any) -> dict[str, Any]:
    """Return what the ledger says, with totals recomputed from single spends."""
    connection = database.connect()
    try:
        one = connection.execute(
            """
            select (select coalesce(sum(epsilon), 0) from dp.spend) as spends,
                   (select coalesce(sum(epsilon), 0) from dp.role_total) as roles,
                   (select coalesce(sum(epsilon * cardinality(roots)), 0) from dp.spend) as rooted,
                   (select coalesce(sum(epsilon), 0) from dp.root_total) as roots,
                   (select coalesce(min(epsilon_remaining), 0) from dp.budgets) as least,
                   (select array_agg(state order by id) from dp.spend) as states
            """
        )
        names = [column.name for column in one.description]
        return dict(zip(names, one.fetchone(), strict=True))
    finally:
        connection.close()
