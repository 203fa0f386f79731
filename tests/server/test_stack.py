"""No stack that an asker or an administrator chooses makes a failure depend on rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from dpsql.query.constants import MAX_WILDCARDS
from tests.server.asking import neighbours, refused, state

pytestmark = pytest.mark.server

SET_UP = """
create table customer (c_custkey int primary key, c_acctbal numeric(15, 2));
insert into customer select i, i from generate_series(1, 50) as i;
select dp.protect('customer'), dp.expose('customer', readers => array['alice']);
create table person (id int primary key);
insert into person select generate_series(1, 5);
create table sold (id int primary key, person int not null references person, amount numeric(15, 2));
insert into sold select i, i, i from generate_series(1, 5) as i;
select dp.protect('person', privacy_unit => 'id'), dp.expose('sold', readers => array['alice']);
select dp.grant_budget('alice', 1000, 1e-3);
"""
PLANTED = "insert into customer values (7000, 469.82)"
#: Executes itself ``try.deep`` times, then the statement; one level is about 3 kB of the stack.
BLOCK = """
do $block$
declare n int := pg_catalog.current_setting('try.deep')::int;
begin
  if n > 0 then
    perform pg_catalog.set_config('try.deep', (n - 1)::text, false);
    execute pg_catalog.current_setting('try.block');
  else
    execute pg_catalog.current_setting('try.statement');
  end if;
end
$block$
"""
MATCHES = f"""select dp_count(*) from customer where replace(case
 when c_custkey = 7000 and c_acctbal >= 469.82 then '{"a" * 99}' else 'b' end, 'a', '{"a" * 100}')
 like '{{}}'"""
FORMS = [
    "select dp_count(*) from customer",
    "select count(*) from dpv.customer",
    "select dp.query('select dp_count(*) from customer')",
    "create temp table kept as select dp_count(*) from customer",
    "select pg_temp.asked()",
    "insert into changed values (1)",
    "do $$ declare c cursor for select dp_count(*) from customer; begin open c; move c; end $$",
    "call pg_temp.called()",
]
MEASURING = [
    "select dp.release('r', 'select c_custkey < 9, dp_count(*) from customer group by 1')",
    "select dp.refresh_release('r')",
]
OWN = """
create function pg_temp.asked() returns float language sql as 'select dp_count(*) from customer';
create procedure pg_temp.called() language plpgsql as
 'begin perform dp_count(*) from customer; end';
create function pg_temp.fired() returns trigger language plpgsql as
 'begin perform pg_temp.asked(); return new; end';
create temp table changed (a int);
create trigger fire before insert on changed for each row execute function pg_temp.fired();
"""


@pytest.fixture(scope="module")
def pair(server: Any) -> Iterator[Any]:
    """Return twin databases; the second has one more row."""
    yield from neighbours(server, SET_UP, PLANTED)


def fill(session: Any, deep: int, statement: str) -> None:
    """Set up `BLOCK` to run the statement at a depth of ``deep`` calls."""
    settings = {"try.block": BLOCK, "try.statement": statement, "try.deep": str(deep)}
    for name, value in settings.items():
        session.execute("select set_config(%s, %s, false)", [name, value])


def deepest(session: Any) -> int:
    """Return how often the block can execute itself."""
    least, most = 0, 100_000
    while least < most:
        middle = (least + most + 1) // 2
        fill(session, middle, "select 1")
        least, most = (middle, most) if state(session, BLOCK) is None else (least, middle - 1)
    return least


@contextmanager
def little_stack(database: Any, depth: str) -> Iterator[None]:
    """Give sessions that begin now no more of the stack."""
    database.sql(f"alter database {database.name} set max_stack_depth = '{depth}'")
    yield
    database.sql(f"alter database {database.name} reset max_stack_depth")


def test_a_full_stack_tells_nothing_of_a_row(pair: Any) -> None:
    """LIKE calls itself for each wildcard that the text of a row matches."""
    outcomes = []
    for database in pair:
        with database.connect(user="alice") as spy:
            spy.execute("set dp.epsilon = 0.000001; set dp.fresh = on")
            most = deepest(spy)
            found = []
            for wildcards in (MAX_WILDCARDS, 5000):
                for short in (5, 10, 20, 40, 100, 200, most - 20):
                    fill(spy, most - short, MATCHES.format("%a" * wildcards))
                    found.append(state(spy, BLOCK))
            outcomes.append((found, database.sql("select count(*) from dp.spend")))
    assert outcomes[0] == outcomes[1]
    found, spent = outcomes[0]
    # the asker's own statement may need more than is left, whatever rows there are
    assert set(found) - {"54001"} == {None, "PD011"}
    assert found.count(None) >= 5
    assert spent == [(found.count(None),)]


@pytest.mark.parametrize("form", MEASURING)
def test_nothing_is_measured_on_a_full_stack(pair: Any, form: str) -> None:
    (before,) = pair[0].sql("select count(*) from dp.spend")
    with pair[0].connect(user="alice") as spy:
        spy.execute(OWN)
        fill(spy, 200, form)
        error = refused(spy, BLOCK)
    assert error.sqlstate == "PD011"
    assert "deeply nested calls" in str(error.diag.message_primary)
    assert "at most 256 kB" in str(error.diag.message_detail)
    assert error.diag.message_hint
    assert pair[0].sql("select count(*) from dp.spend") == [before]


@pytest.mark.parametrize("deep", [40, 200])
@pytest.mark.parametrize("form", FORMS)
def test_functions_that_call_each_other_may_ask(pair: Any, form: str, deep: int) -> None:
    """What is read is read in another backend, whose stack is empty."""
    with pair[0].connect(user="alice") as analyst:
        analyst.execute(OWN)
        analyst.execute("set dp.epsilon = 0.000001")
        fill(analyst, deep, form)
        analyst.execute(BLOCK)


def test_a_server_with_little_stack_answers_nothing(pair: Any) -> None:
    """The hint, followed, works."""
    database = pair[0]
    (before,) = database.sql("select count(*) from dp.spend")
    with little_stack(database, "1MB"), database.connect() as admin:
        admin.execute("set dp.fresh = on")
        error = refused(admin, FORMS[0])
        assert error.sqlstate == "PD011"
        assert "max_stack_depth is too small" in str(error.diag.message_primary)
        assert "max_stack_depth = '2MB'" in str(error.diag.message_hint)
    with little_stack(database, "2MB"), database.connect() as admin:
        admin.execute("set dp.fresh = on")
        assert state(admin, FORMS[0]) != "PD011"
    assert database.sql("select count(*) from dp.spend") == [before]


def test_a_pattern_has_few_wildcards(pair: Any) -> None:
    (before,) = pair[0].sql("select count(*) from dp.spend")
    with pair[0].connect(user="alice") as spy:
        for operator in ("like", "not like", "ilike", "~~"):
            text = MATCHES.replace("like", operator).format("%a" * (MAX_WILDCARDS + 1))
            error = refused(spy, text)
            assert error.sqlstate == "PD011"
            assert f"at most {MAX_WILDCARDS} wildcards" in str(error.diag.message_primary)
    assert pair[0].sql("select count(*) from dp.spend") == [before]


def test_patterns_need_as_little_as_is_said(pair: Any) -> None:
    """As sql/hook/stack.c adds up: with what a statement needs itself, within 100 kB."""
    with pair[0].connect() as admin:
        admin.execute("set max_stack_depth = '100kB'")
        text, pattern = "a" * MAX_WILDCARDS, "%a" * MAX_WILDCARDS
        for operator in ("like", "ilike"):
            found = admin.execute(f"select %s {operator} %s", [text, pattern]).fetchone()
            assert found == (True,)
        with pytest.raises(psycopg.errors.StatementTooComplex):
            admin.execute("select %s like %s", [text * 20, pattern * 20])


DEEP = {
    "sums": "{left}c_custkey{middle} > 0|(|+ c_acctbal)",
    "quotients": "{left}c_custkey{middle} > 0|(|/ c_acctbal)",
    "floats": "{left}c_acctbal::float{middle} > 0|(|/ c_acctbal::float)",
    "integers": "{left}c_custkey{middle} > 0|(|/ c_custkey)",
    "texts": "{left}c_custkey::text{middle} = 'a'|replace(|, 'a', 'b')",
    "conditions": "{left}c_custkey{middle} > 0|case when c_acctbal > 1 then c_custkey else | end",
    "choices": "{left}c_custkey{middle} > 0|coalesce(nullif(|, 1), 2)",
}


@pytest.mark.parametrize("form", DEEP.values(), ids=DEEP)
def test_no_expression_is_too_deep_for_the_least_stack(pair: Any, form: str) -> None:
    """The analyser refuses what is deeper than it is itself; the rest is read."""
    text, left, right = form.split("|")
    (before,) = pair[0].sql("select count(*) from dp.spend")
    pair[0].sql("select dp.grant_budget('postgres', 1000, 1e-3)")
    with little_stack(pair[0], "1280kB"), pair[0].connect() as admin:
        admin.autocommit = True
        admin.execute("set dp.fresh = on")
        found = {}
        least, most = 0, 640
        while most - least > 20:
            deep = (least + most) // 2
            condition = text.format(left=left * deep, middle=right * deep)
            found[deep] = state(admin, f"select dp_count(*) from customer where {condition}")
            least, most = (least, deep) if found[deep] else (deep, most)
    assert set(found.values()) <= {None, "PD011"}
    (after,) = pair[0].sql("select count(*) from dp.spend")
    assert after[0] - before[0] == list(found.values()).count(None)


def over(number: int, column: str) -> str:
    return ", ".join(f"{column} + {i}" for i in range(number))


def compared(number: int) -> str:
    return " and ".join(f"x.c_acctbal + {i} < y.c_acctbal" for i in range(number))


def summed(number: int) -> str:
    return ", ".join(f"dp_sum(x.c_acctbal, 0, {i + 1})" for i in range(number))


PAIRS = "from customer x, customer y where"
#: The texts that are just answered, and those that are just refused.
LAST = {
    "arrays": "select array[array[array[array[array[array[dp_count(*)]]]]]] from customer",
    "conditions over several relations": f"select dp_count(*) {PAIRS} {compared(1649)}",
    "group keys": f"select dp_count(*) from customer group by {over(1598, 'c_acctbal')}",
    "group keys over units": f"select dp_count(*) from sold group by {over(553, 'amount')}",
}
BEYOND = {
    "arrays": LAST["arrays"].replace("dp_count(*)", "array[dp_count(*)]"),
    "conditions over several relations": f"select dp_count(*) {PAIRS} {compared(1650)}",
    "conditions and sums": f"select {summed(26)} {PAIRS} {compared(1640)}",
    "group keys": f"select dp_count(*) from customer group by {over(1600, 'c_acctbal')}",
    "group keys over units": f"select dp_count(*) from sold group by {over(554, 'amount')}",
}


@pytest.mark.parametrize("text", LAST.values(), ids=LAST)
def test_what_the_server_can_do_is_answered(pair: Any, text: str) -> None:
    with pair[0].connect(user="alice") as analyst:
        analyst.execute("set dp.epsilon = 0.01; set dp.delta = 1e-9")
        assert state(analyst, text) is None


@pytest.mark.parametrize("text", BEYOND.values(), ids=BEYOND)
def test_what_the_text_alone_decides_is_refused_for_nothing(pair: Any, text: str) -> None:
    before = pair[0].sql("select count(*) from dp.spend")
    with pair[0].connect(user="alice") as analyst:
        analyst.execute("set dp.epsilon = 0.01; set dp.delta = 1e-9")
        error = refused(analyst, text)
    assert str(error.sqlstate) in ("PD010", "PD011"), error
    assert error.diag.message_hint
    assert pair[0].sql("select count(*) from dp.spend") == before
