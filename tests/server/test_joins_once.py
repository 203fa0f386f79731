"""Outer joins, IN and EXISTS: answered where they are inner joins, and then as PostgreSQL does.

Noise is off, so that every answer is PostgreSQL's own or wrong.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from tests.server import asking

pytestmark = pytest.mark.server

SET_UP = """
create table land (l_id int primary key, l_name text not null, l_part int not null, l_code text unique);
create table customer (c_id int primary key, c_land int not null references land, c_born int references land (l_id),
  c_kind text not null);
create table buy (b_id int primary key, b_customer int not null references customer, b_gift int references customer,
  b_amount int not null, b_note text, unique (b_customer, b_amount, b_id));
create table mark (m_buy int not null references buy, m_what text not null, primary key (m_buy, m_what));
insert into land select i, 'land ' || i, i % 2, nullif('c' || i, 'c3') from generate_series(1, 5) as i;
insert into customer select i, 1 + i % 4, case when i % 3 > 0 then 1 + i % 5 end, (array['a', 'b'])[1 + i % 2]
  from generate_series(1, 60) as i;
insert into buy select i, 1 + i * i % 50, case when i % 4 > 0 then 1 + i % 60 end, i % 10, nullif('n' || i % 6, 'n5')
  from generate_series(1, 300) as i;
insert into mark select 1 + i * 7 % 290, 'w' || i % 3 from generate_series(1, 290) as i;
grant dp_owner to owner1;
alter table land owner to owner1; alter table customer owner to owner1; alter table buy owner to owner1; alter table mark owner to owner1;
set role owner1;
select dp.declare_public('land'), dp.protect('customer', delta => 1), dp.protect('buy', delta => 1), dp.protect('mark', delta => 1);
select dp.set_domain('customer', 'c_kind', array['a', 'b']);
select dp.set_domain('buy', 'b_amount', array[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
select dp.set_domain('mark', 'm_what', array['w0', 'w1', 'w2']);
select dp.expose('customer'), dp.expose('buy'), dp.expose('mark');
reset role;
select dp.grant_budget('postgres', epsilon => 100000, delta => 1);
"""

ANSWERED = [
    # each row has a match, by a foreign key that is never NULL
    "select count(*) from {b} as b left join {c} as c on c.c_id = b.b_customer",
    "select count(*) from {c} as c right join {b} as b on c.c_id = b.b_customer",
    "select l_name, count(*) from {c} as c left join land on l_id = c_land group by 1",
    "select l_name, count(*) from {b} as b left join {c} as c on c.c_id = b.b_customer left join land on l_id = c.c_land group by 1",
    "select c_kind, count(*) from {m} as m left join {b} as b on m_buy = b_id left join {c} as c on b_customer = c_id group by 1",
    "select count(*) from {m} as m left join ({b} as b left join {c} as c on b_customer = c_id) on m_buy = b_id where c_kind = 'a'",
    "select c_kind, count(*) from {b} as b left join (select c_id as id, upper(c_kind) as kind, c_kind from {c}) as c on c.id = b.b_customer"
    " group by 1",
    # what follows needs a match
    "select count(*) from {b} as b left join {c} as c on c.c_id = b.b_gift where c.c_kind = 'a'",
    "select count(*) from {c} as c left join {b} as b on c.c_id = b.b_customer where b.b_amount > 4",
    "select count(*) from {c} as c left join {b} as b on c.c_id = b.b_customer where b.b_id is not null",
    "select count(*) from {c} as c left join {b} as b on c.c_id = b.b_customer and b.b_amount > 2 where b.b_amount < 7 or b.b_note = 'n1'",
    "select count(*) from {c} as c left join (select b_customer as k, 1 as there from {b} where b_amount > 4) as b on k = c_id where there = 1",
    "select count(*) from {c} as c left join (select b_customer as k, coalesce(b_note, 'none') as note from {b}) as b on k = c_id where note = 'none'",
    "select l_name, count(*) from {c} as c left join land on l_id = c_born where l_part = 1 group by 1",
    "select count(*) from {b} as b left join {c} as c on c.c_id = b.b_gift join land on l_id = c.c_land where l_part = 0",
    # nothing is read of the other side
    "select count(*) from {b} as b left join {c} as c on c.c_id = b.b_gift",
    "select b_amount, count(*) from {b} as b left join {c} as c on c.c_id = b.b_gift left join land on l_id = c.c_born group by 1",
    "select count(*) from {c} as c left join land on l_id = c_born and l_part = 1",
    "select count(*) from (select c_kind, l_name, lower(l_name) from {c} left join land on l_id = c_born) as t where c_kind = 'a'",
    "select count(*) from {b} as b left join (select c_id as b_gift from {c}) as c using (b_gift)",
    "select count(*) from land right join {c} as c on l_id = c_born",
    # values of a public relation that are no key
    "select count(*) from {c} where c_land in (select l_part from land)",
    # only matches are counted
    "select c_kind, count(b.b_id) from {c} as c left join {b} as b on c.c_id = b.b_customer group by 1",
    "select l_name, count(c_id) from land left join {c} as c on l_id = c_land group by 1",
    "select l_name, count(c_id), count(distinct c_kind) from land left join {c} as c on l_id = c_land and c_kind = 'b' group by 1",
    "select c_kind, sum(b.b_amount), avg(b.b_amount), count(b_amount) from {c} as c left join {b} as b on c.c_id = b.b_customer group by 1",
    "select count(b_note) from {c} as c left join {b} as b on c.c_id = b.b_customer",
    # IN and EXISTS with at most one match
    "select count(*) from {b} where b_customer in (select c_id from {c} where c_kind = 'a')",
    "select count(*) from {b} where b_gift in (select c_id from {c} where c_kind = 'a') and b_amount > 3",
    "select count(*) from {c} where c_land in (select l_id from land where l_part = 1)",
    "select c_kind, count(*) from {c} where c_born = any (select l_id from land where l_name like '%2') group by 1",
    "select count(*) from {c} where c_land in (select l_id from land where l_code is not null) and c_born in (select l_id from land)",
    "select count(*) from {b} as b where exists (select from {c} as c where c.c_id = b.b_gift and c.c_kind = 'b')",
    "select count(*) from {b} as b where exists (select 1 from {c} as c join land on l_id = c_land where c.c_id = b.b_customer and l_part = 0 limit 1)",
    "select count(*) from {b} as b where exists (select * from {m} as m where m.m_buy = b.b_id and m.m_what = 'w1')",
    "select count(*) from {b} where b_customer in (select c_id from {c} where c_land in (select l_id from land where l_part = 1))",
    "select count(*) from {b} where b_customer in (select distinct c_id from {c} order by c_id)",
    "select count(*) from {b} as b join {c} as c on c_id = b_customer and exists (select from land where l_id = c_land and l_part = 1)",
    "with k as (select c_id from {c} where c_kind = 'a') select count(*) from {b} where b_customer in (select c_id from k)",
    "select count(*) from {b} as b left join {c} as c on c_id = b_gift where b_gift in (select c_id from {c} where c_kind = 'a') and c_kind <> 'b'",
]  # fmt: skip
REFUSED = [
    "select count(*) from {c} as c left join {b} as b on c.c_id = b.b_customer",
    "select c_kind, count(*) from {b} as b left join {c} as c on c.c_id = b.b_gift group by 1",
    "select count(*) from {b} as b left join {c} as c on c.c_id = b.b_gift where c.c_id is null",
    "select count(*) from {b} as b left join {c} as c on c.c_id = b.b_gift where coalesce(c.c_kind, 'a') = 'a'",
    "select count(*) from {b} as b left join {c} as c on c.c_id = b.b_gift where c.c_kind = 'a' is not true",
    "select count(*) from {c} as c full join {b} as b on c.c_id = b.b_customer",
    "select l_name, count(*) from land left join {c} as c on l_id = c_land group by 1",
    "select count(b_id), count(*) from {c} as c left join {b} as b on c.c_id = b.b_customer",
    "select b_note, count(m_buy) from {b} as b left join {m} as m on m_buy = b_id group by 1",
    "select l_name, count(c_id) from land left join {c} as c on l_id = c_land and l_part = 1 group by 1",
    "select l_name, count(c_id) from land left join {c} as c on l_id = c_land and c_land = 2 group by 1",
    "select count(*) from {b} as b left join {c} as c on c.c_id = b.b_customer and c.c_kind = 'a' where b_amount + length(coalesce(c_kind, 'x')) > 2",
    "select count(*) from {c} where c_id in (select b_customer from {b})",
    "select count(*) from {c} where c_id in (select b_customer from {b} limit 1)",
    "select count(*) from {c} where c_id in (select c_id from {c} group by c_id)",
    "select count(*) from {c} where c_kind in (select l_code from land) or c_id = 3",
    "select count(*) from {c} as c where exists (select from {b} as b where b.b_customer = c.c_id)",
    "select count(*) from {b} as b where exists (select from {m} as m where m.m_buy = b.b_id)",
    "select count(*) from {b} as b where exists (select count(*) from {c} as c where c.c_id = b.b_customer)",
    "select count(*) from {b} as b where exists (select generate_series(1, 0) from {c} as c where c.c_id = b.b_customer)",
    "select count(*) from {b} as b where exists (select 1 from {c} as c where c.c_id = b.b_customer limit 0)",
    "select count(*) from {b} as b where exists (select 1 from {c} as c where c.c_id = b.b_customer offset 1)",
    "select count(*) from {b} as b where not exists (select from {c} as c where c.c_id = b.b_gift)",
    "select count(*) from {b} where b_gift not in (select c_id from {c})",
    "select count(*) filter (where b_gift in (select c_id from {c})) from {b}",
    "select b_gift in (select c_id from {c}), count(*) from {b} group by 1",
]  # fmt: skip


@pytest.fixture(scope="module")
def joined(server: Any) -> Iterator[Any]:
    yield from asking.made(server, SET_UP)


@pytest.fixture(scope="module")
def silent(joined: Any) -> Iterator[Any]:
    with asking.silent(joined, "customer") as session:
        session.execute("set client_min_messages = error; set dp.epsilon = 1")
        yield session


def over(statement: str, schema: str) -> str:
    return statement.format(c=f"{schema}.customer", b=f"{schema}.buy", m=f"{schema}.mark")


def private(statement: str) -> str:
    """The same over the relations, with private aggregates."""
    for name in ("count", "sum", "avg"):
        statement = statement.replace(f"{name}(", f"dp_{name}(")
    return over(statement, "public")


def plain(rows: list[Any]) -> list[Any]:
    """Groups of declared domains show without rows, too."""
    found = [[float(v) if isinstance(v, Decimal) else v for v in row] for row in rows]
    return sorted((row for row in found if len(row) < 2 or row[1] != 0), key=str)


@pytest.mark.parametrize("statement", ANSWERED)
def test_what_meets_each_row_once_is_answered(silent: Any, statement: str) -> None:
    truth = plain(silent.execute(over(statement, "public")).fetchall())
    assert truth
    assert plain(silent.execute(over(statement, "dpv")).fetchall()) == truth
    assert plain(silent.execute(private(statement)).fetchall()) == truth


@pytest.mark.parametrize("statement", REFUSED)
def test_the_rest_is_refused_before_anything_is_spent(
    joined: Any, silent: Any, statement: str
) -> None:
    before = joined.sql("select count(*) from dp.ledger")
    for text in (over(statement, "dpv"), private(statement)):
        error = asking.refused(silent, text)
        assert error.sqlstate in ("PD011", "PD013"), error
        assert error.diag.message_hint
    assert joined.sql("select count(*) from dp.ledger") == before


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("from {b} where b_customer in (select c_id from {c} where c_kind = 'a')",
         "from {b} join {c} on b_customer = c_id where c_kind = 'a'"),
        ("from {c} as c left join land on l_id = c_land", "from {c} as c join land on l_id = c_land"),
    ],
)  # fmt: skip
def test_it_is_one_question_with_the_inner_join(joined: Any, written: str, meant: str) -> None:
    with joined.connect() as session:
        session.execute("set dp.epsilon = 0.5")
        first = session.execute(over(f"select count(*) {written}", "dpv")).fetchall()
        before = joined.sql("select count(*) from dp.ledger")
        assert session.execute(over(f"select count(*) {meant}", "dpv")).fetchall() == first
        assert session.execute(private(f"select count(*) {meant}")).fetchall() == first
    assert joined.sql("select count(*) from dp.ledger") == before


UNITS = """
create table person (id int primary key, land int not null, kind text not null);
create table visit (id int primary key, person int not null references person, day int not null, guest int);
insert into person select i, i % 4, (array['a', 'b'])[1 + i % 2] from generate_series(1, 50) as i;
insert into visit select i, 1 + i % 50, i % 7, nullif(i % 50, 0) from generate_series(1, 200) as i;
select dp.protect('person', privacy_unit => 'id');
select dp.set_domain('person', 'kind', array['a', 'b']);
select dp.grant_budget('postgres', epsilon => 1000, delta => 1e-4);
"""


def test_privacy_units_own_what_the_inner_join_gives_them(server: Any) -> None:
    for database in asking.made(server, UNITS):
        with database.connect() as session:
            session.execute("set dp.epsilon = 0.5; set client_min_messages = error")
            for written, meant in (
                ("select kind, dp_count(*) from visit as v left join person as p on p.id = v.person group by 1",
                 "select kind, dp_count(*) from visit as v join person as p on p.id = v.person group by 1"),
                ("select dp_count(*) from visit where person in (select id from person where land = 1)",
                 "select dp_count(*) from visit as v join person as p on p.id = v.person where land = 1"),
                ("select kind, dp_count(v.id) from person as p left join visit as v on v.person = p.id group by 1",
                 "select kind, dp_count(*) from visit as v join person as p on p.id = v.person group by 1"),
                ("select dp_count(*) from visit as v where exists (select from person as p where p.id = v.guest and land = 2)",
                 "select dp_count(*) from visit as v join person as p on p.id = v.guest where land = 2"),
            ):  # fmt: skip
                first = session.execute(written).fetchall()
                before = database.sql("select count(*) from dp.ledger")
                assert session.execute(meant).fetchall() == first
                assert database.sql("select count(*) from dp.ledger") == before


def test_operators_of_others_are_not_taken_for_equality(joined: Any) -> None:
    with joined.connect() as session:
        session.execute(
            "create schema mine; create function mine.same(int, int) returns boolean language sql immutable as 'select true';"
            " create operator mine.= (leftarg = int, rightarg = int, function = mine.same); set search_path = mine, pg_catalog"
        )
        for statement in (
            "select count(*) from {b} where b_customer in (select c_id from {c})",
            "select count(*) from {b} as b where exists (select from {c} as c where c_id = b_customer)",
            "select count(*) from {b} as b left join {c} as c on c_id = b_customer",
            "select count(*) from {b} as b left join (select c_id as b_customer from {c}) as c using (b_customer)",
        ):
            error = asking.refused(session, over(statement, "dpv"))
            assert str(error.sqlstate).startswith("PD01")
            assert "operator" in str(error).lower(), error
        session.execute("drop schema mine cascade")


LINKS = {"b": [("c", "{0}.b_customer = {1}.c_id"), ("c", "{0}.b_gift = {1}.c_id"), ("m", "{1}.m_buy = {0}.b_id")],
         "c": [("l", "{0}.c_land = {1}.l_id"), ("l", "{0}.c_born = {1}.l_id"), ("b", "{1}.b_customer = {0}.c_id")],
         "m": [("b", "{0}.m_buy = {1}.b_id")], "l": []}  # fmt: skip
CONDITIONS = {"b": ["{}.b_amount > 4", "{}.b_note = 'n1'", "{}.b_note is null", "{}.b_id is not null"],
              "c": ["{}.c_kind = 'a'", "{}.c_born is null", "not {}.c_kind = 'a'", "{}.c_id is null",
                    "coalesce({}.c_kind, 'a') = 'a'"],
              "m": ["{}.m_what = 'w1'", "{}.m_what is not null"],
              "l": ["{}.l_part = 1", "{}.l_part is distinct from 0", "{}.l_code is null"]}  # fmt: skip
COUNTED = {"b": "b_id", "c": "c_id", "m": "m_buy", "l": "l_id"}
KEYS = {"b": "b_amount", "c": "c_kind", "m": "m_what", "l": "l_name"}


class Writer:
    """Writes chains of joins over the relations, with conditions that read any of them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def statement(self) -> str:
        names = {"b": "{b}", "c": "{c}", "m": "{m}", "l": "land"}
        members = [self.random.choice("bcm")]
        text = f"{names[members[0]]} as t0"
        for _ in range(self.random.randint(1, 3)):
            at = self.random.randrange(len(members))
            if not LINKS[members[at]]:
                continue
            other, link = self.random.choice(LINKS[members[at]])
            alias = f"t{len(members)}"
            on = link.format(f"t{at}", alias)
            if self.random.random() < 0.2:
                on += " and " + self.random.choice(CONDITIONS[other]).format(alias)
            kind = self.random.choice(["left join", "left join", "join", "right join"])
            text = f"{text} {kind} {names[other]} as {alias} on {on}"
            members.append(other)
        conditions = [
            self.random.choice(CONDITIONS[kind]).format(f"t{i}")
            for i, kind in enumerate(members)
            if self.random.random() < 0.35
        ]
        if self.random.random() < 0.3:
            kind = self.random.choice(["exists (select from {c} as x where x.c_id = t0.{} and x.c_kind = 'b')",
                                       "t0.{} in (select c_id from {c} where c_kind = 'a')"])  # fmt: skip
            column = {"b": self.random.choice(["b_customer", "b_gift"]), "c": "c_id", "m": "m_buy"}
            conditions.append(kind.replace("{}", column[members[0]]))
        where = (
            f" where {self.random.choice([' and ', ' and ', ' or ']).join(conditions)}"
            if conditions
            else ""
        )
        at = self.random.randrange(len(members))
        count = self.random.choice(["count(*)", f"count(t{at}.{COUNTED[members[at]]})"])
        at = self.random.randrange(len(members))
        key = f"t{at}.{KEYS[members[at]]}"
        if self.random.random() < 0.5:
            return f"select {count} from {text}{where}"
        return f"select {key}, {count} from {text}{where} group by 1"


@pytest.mark.parametrize("block", range(3))
def test_chains_of_joins_are_answered_as_by_postgresql_or_refused(silent: Any, block: int) -> None:
    answered = 0
    for seed in range(block * 50, block * 50 + 50):
        statement = Writer(seed).statement()
        try:
            found = silent.execute(over(statement, "dpv")).fetchall()
        except psycopg.Error as error:
            assert str(error.sqlstate).startswith("PD01"), (seed, statement, error)  # noqa: PT017
            continue
        known = silent.execute(over(statement, "public")).fetchall()
        assert plain(found) == plain(known), (seed, statement)
        answered += 1
    assert answered >= 15, answered
