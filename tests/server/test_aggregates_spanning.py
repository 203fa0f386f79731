"""Values by rank, histograms and distinct values of expressions over columns of several relations.

The noise is taken away; what is left must be PostgreSQL's own answer about the join.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from tests.property.test_units_match_the_join import BOUND
from tests.server import asking
from tests.server.asking import refused

pytestmark = pytest.mark.server

# The same rows twice: protected one by one, and as those of 60 people.
SET_UP = """
create table person (id int primary key, age int not null, name text not null, born date);
insert into person select g, g % 17, 'n' || g % 5, date '1980-01-01' + g from generate_series(1, 60) g;
create table visit (v int primary key, id int not null references person, spent int, paid numeric(8,2),
  free numeric, day timestamp, word text not null);
insert into visit select g, 1 + g % 60, g % 23, g / 7.0, (g % 4)::numeric, timestamp '2020-01-01' + g * interval '1 hour',
  'w' || g % 3 from generate_series(1, 900) g;
update visit set spent = null, free = null where v % 10 = 0;
create table tag (t int primary key, v int not null, price int not null);
insert into tag select g, 1 + g % 900, g % 5 from generate_series(1, 1800) g;
create table person_row (like person including all);
create table visit_row (like visit including all);
create table tag_row (like tag including all);
insert into person_row select * from person;
insert into visit_row select * from visit;
insert into tag_row select * from tag;
alter table tag add foreign key (v) references visit;
create table known (age int not null, factor int not null);
insert into known select g, g % 3 from generate_series(0, 16) g;
create table known_too (age int not null, factor int not null);
insert into known_too select age, factor + 1 from known;
select dp.protect('person', privacy_unit => 'id', delta => 1), dp.declare_public('known'),
  dp.declare_public('known_too');
select dp.protect(r, delta => 1) from unnest(array['person_row', 'visit_row', 'tag_row']::regclass[]) as r;
select dp.set_domain(r, 'name', array['n0', 'n1', 'n2', 'n3', 'n4'])
  from unnest(array['person', 'person_row']::regclass[]) as r;
select dp.grant_budget('postgres', 1e6, 1), dp.grant_budget('alice', 1e6, 1);
"""
#: What is joined, and an expression of two relations at least, with its bounds.
CASES = [
    ("person{0} p join visit{0} v using (id)", "p.age * v.spent", "0, 352"),
    ("person{0} p join visit{0} v using (id)", "p.age - v.paid", "-112, 16"),
    ("person{0} p join visit{0} v using (id) where v.v % 2 = 0 and p.age > 3", "p.age + v.spent", "3, 38"),
    ("person{0} p join visit{0} v using (id) where p.age < v.spent", "v.spent - p.age", "1, 22"),
    ("visit{0} v join tag{0} t using (v)", "v.spent * t.price", "0, 88"),
    ("person{0} p join visit{0} v using (id) join tag{0} t using (v)", "p.age + v.spent * t.price", "0, 104"),
    ("person{0} p join known k using (age)", "(p.id + k.factor) * k.factor", "0, 124"),
    ("known a join known_too b using (age)", "10 * a.factor + b.factor", "0, 23"),
]  # fmt: skip


@pytest.fixture(scope="module")
def people(server: Any) -> Iterator[Any]:
    yield from asking.made(server, SET_UP)


@pytest.fixture(scope="module")
def silent(people: Any) -> Iterator[Any]:
    with asking.silent(people, "person", BOUND.format(2**40)) as session:
        session.execute("set dp.epsilon = 100")
        yield session


def one(session: Any, statement: str) -> Any:
    ((value,),) = session.execute(statement).fetchall()
    return value


@pytest.mark.parametrize("suffix", ["", "_row"])
@pytest.mark.parametrize(("source", "value", "bounds"), CASES)
def test_medians_are_those_of_the_join(
    silent: Any, suffix: str, source: str, value: str, bounds: str
) -> None:
    source = source.format(suffix)
    found = one(silent, f"select dp_median({value}, {bounds}) from {source}")
    own = one(
        silent,
        f"select percentile_disc(0.5) within group (order by {value}) from {source}",
    )
    assert found == own
    low, high = bounds.split(", ")
    cells = one(silent, f"select dp_histogram({value}, {bounds}, 6) from {source}")
    expected = dict(
        silent.execute(
            f"select least(width_bucket({value}::numeric, {low}, {high}, 6), 6), count(*)"
            f" from {source} {'and' if 'where' in source else 'where'} {value} is not null group by 1"
        ).fetchall()
    )
    assert cells == [expected.get(cell, 0) for cell in range(1, 7)]
    found = one(silent, f"select dp_count(distinct {value}) from {source}")
    assert found == one(silent, f"select count(distinct {value}) from {source}")


@pytest.mark.parametrize("suffix", ["", "_row"])
def test_groups_filters_and_several_at_once(silent: Any, suffix: str) -> None:
    source = f"person{suffix} p join visit{suffix} v using (id)"
    found = silent.execute(
        "select name, dp_median(p.age * v.spent, 0, 352), dp_percentile(p.age * v.spent, 0.9, 0, 352),"
        " dp_count(distinct p.age * v.spent), dp_count(distinct p.name || v.word),"
        " dp_histogram(p.age * v.spent, 0, 352, 3) filter (where v.v > 300), dp_sum(p.age * v.spent, 0, 352),"
        f" dp_median(v.day, '2020-01-01', '2020-01-02'), dp_count(*) from {source} group by name order by name"
    ).fetchall()
    own = silent.execute(
        "select name, percentile_disc(0.5) within group (order by p.age * v.spent),"
        " percentile_disc(0.9) within group (order by p.age * v.spent),"
        " count(distinct p.age * v.spent), count(distinct p.name || v.word),"
        " array[count(*) filter (where v.v > 300 and p.age * v.spent between 0 and 352 and p.age * v.spent < 352/3.0),"
        "  count(*) filter (where v.v > 300 and p.age * v.spent >= 352/3.0 and p.age * v.spent < 2*352/3.0),"
        "  count(*) filter (where v.v > 300 and p.age * v.spent >= 2*352/3.0)], sum(p.age * v.spent),"
        f" timestamp '2020-01-02', count(*) from {source} group by name order by name"
    ).fetchall()
    assert [row[:7] + row[8:] for row in found] == [row[:7] + row[8:] for row in own]
    # most days are later than the range, whose cells are 1.3 seconds wide
    assert all(
        abs(mine[7] - its[7]) < timedelta(seconds=1.4) for mine, its in zip(found, own, strict=True)
    )


def test_moments_of_two_relations(silent: Any) -> None:
    source = "person p join visit v using (id)"
    value = "case when p.age > 8 then p.born else v.day::date end"
    found = one(silent, f"select dp_median({value}, '1980-01-01', '2020-12-31') from {source}")
    assert found == one(
        silent, f"select percentile_disc(0.5) within group (order by {value}) from {source}"
    )


def test_equivalent_texts_are_one_question_and_others_are_not(people: Any) -> None:
    alice = people.connect(user="alice")
    first = "select dp_median(p.age * v.spent, 0, 352) from person p join visit v using (id)"
    same = "select dp_median(a.age * b.spent, 0, 352) from visit b, person a where a.id = b.id"
    other = "select dp_median(p.age + v.spent, 0, 352) from person p join visit v using (id)"
    spent = "select count(*) from dp.spend"
    before = people.sql(spent)[0][0]
    value = one(alice, first)
    assert one(alice, same) == value
    assert people.sql(spent)[0][0] == before + 1
    one(alice, other)
    assert people.sql(spent)[0][0] == before + 2


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("dp_median((p.age * v.free)::text::numeric, 0, 9)", "not allowed"),
        ("dp_count(distinct (p.age + v.free)::text)", "not supported"),
        ("dp_median(5, 0, 9)", "must use columns"),
        ("dp_histogram(5, 0, 9, 3)", "must use columns"),
        ("dp_count(distinct 5)", "over columns"),
    ],
)
def test_what_is_refused_says_why(people: Any, call: str, said: str) -> None:
    alice = people.connect(user="alice")
    before = people.sql("select count(*) from dp.spend")
    error = refused(alice, f"select {call} from person p join visit v using (id)")
    assert said in str(error)
    assert people.sql("select count(*) from dp.spend") == before
