"""Charge the ledger in a service session, as dp.run does, but without a query to answer."""

from __future__ import annotations

from typing import Any

from tests.server.in_service import MARK, in_service

# A question costs epsilon 1; its "answer" is a text that no two computations share.  While it is
# asked and computed, the name of the service session's application says so.
ASK = f"""
create schema probe;
grant usage on schema probe to public;
create function probe.ask(question text, root integer, seconds float8 default 0,
                          fresh boolean default false)
returns text language sql as $ask$
    select x from dp.run(format($python${MARK}
import os, time
from fractions import Fraction
from dpsql.errors import DpsqlError
from dpsql.ledger.model import Charge, Hit
from dpsql.ledger.store import LedgerStore
from dpsql.server.own_transactions import OwnTransactions
from dpsql.server.spi import SpiDatabase
question, seconds = %s, %s
if "probe" not in GD:
    GD["probe"] = LedgerStore(OwnTransactions(plpy, SpiDatabase(plpy, {{}}, None)))
store = GD["probe"]
def say(name):
    plpy.execute("select set_config('application_name', '" + name + "', false)")
try:
    say("asking")
    opened = store.open(Charge(
        role=%s, role_name=%s, roots=(%s,), epsilon=Fraction(1), delta=Fraction(0),
        mechanism="laplace", method="residual", label="proved", question=question,
        key=question.encode(), fresh=bool(%s)))
    if isinstance(opened, Hit):
        return opened.payload
    try:
        say("computing")
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(0.01)
            plpy.execute("select 1")
        payload = os.urandom(8).hex()
    except BaseException:
        store.fail(opened)
        raise
    store.finish(opened, payload)
    return payload
except DpsqlError as error:
    plpy.error(error.message, detail=error.detail, hint=error.hint, sqlstate=error.sqlstate)
finally:
    say("dpsql_service")
$python$, to_json(question), seconds, dp.caller()::oid::int8, to_json(dp.caller()::regrole::text),
          root, fresh::int), null) as (x text)
$ask$;
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
    connection.execute(in_service("pass"))
    connection.execute(ASK)
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
