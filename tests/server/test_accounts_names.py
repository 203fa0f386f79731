"""Rows belong to units as before by the same relations and columns, whatever their names are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from asking import state

WORLD = """
create schema s1;
create schema s2;
create table person (p_id int primary key, p_house int not null);
create table s1.visit (v_id int primary key, v_one int not null references person, v_two int not null);
create table s1.other (v_id int primary key, v_one int not null references person, v_two int not null);
create table s2.visit (v_id int primary key, v_one int not null references person, v_two int not null);
create table line (l_visit int not null constraint line_visit references s1.visit,
  l_else int not null);
insert into person select i, i % 3 from generate_series(1, 30) i;
insert into s1.visit select i, 1, 2 from generate_series(1, 30) i;
insert into s1.other select i, i, 2 from generate_series(1, 30) i;
insert into s2.visit select i, i, 2 from generate_series(1, 30) i;
insert into line select i, 31 - i from generate_series(1, 30) i;
grant usage on schema s1, s2 to alice;
select dp.grant_budget('alice', 1000, 1e-3);
"""
BY_VISIT = "select dp.protect('person', privacy_unit => 'p_id')"
ANEW = "alter table line drop constraint line_visit"
KEY = "alter table line add constraint line_visit foreign key (l_visit) references"
NOT_NULL = "alter table line alter l_visit set not null"
MADE = "create table s1.visit (v_id int primary key, v_one int not null references person)"
FILL = "insert into s1.visit select i, 1 + i % 7 from generate_series(1, 30) i"
#: Rows of line belong to other units afterwards, by names alone to the same.
OTHERWISE = {
    "other schema": f"{ANEW}; {KEY} s2.visit",
    "renamed twin": f"{ANEW}; alter table s1.visit rename to gone;"
    f" alter table s1.other rename to visit; {KEY} s1.visit",
    "renamed schema": f"{ANEW}; alter schema s1 rename to gone; alter schema s2 rename to s1;"
    f" {KEY} s1.visit",
    "exchanged columns": f"{ANEW}; alter table line rename l_visit to l_gone;"
    f" alter table line rename l_else to l_visit; {KEY} s1.visit",
    "exchanged columns of the parent": "alter table s1.visit drop constraint visit_v_one_fkey;"
    " alter table s1.visit rename v_one to v_gone; alter table s1.visit rename v_two to v_one;"
    " alter table s1.visit add foreign key (v_one) references person",
    "made again beside a renamed twin": "create table copied as table line; drop table line;"
    " alter table s1.visit rename to gone; alter table s1.other rename to visit;"
    f" alter table copied rename to line; {NOT_NULL}; {KEY} s1.visit",
}
#: Something was dropped and made again under its name, or has another name.
AS_BEFORE = {
    "nothing": "",
    "parent": f"{ANEW}; drop table s1.visit; {MADE}; {FILL}; {KEY} s1.visit",
    "child": "create table copied as table line; drop table line;"
    f" alter table copied rename to line; {NOT_NULL}; {KEY} s1.visit",
    "both": "create table copied as table line; drop table line; drop table s1.visit;"
    f" {MADE}; {FILL}; alter table copied rename to line;"
    f" {NOT_NULL}; {KEY} s1.visit",
    "column": "alter table line drop l_visit; alter table line add l_visit int not null default 3;"
    f" {KEY} s1.visit",
    "column of the parent": "alter table s1.visit drop v_one; alter table s1.visit add v_one"
    " int not null default 3 references person",
    "names": "alter table s1.visit rename to calls; alter table line rename l_visit to l_call;"
    " alter table s1.calls rename v_one to v_1; alter schema s1 rename to s3",
}


@pytest.fixture
def lines(server: Any) -> Iterator[Any]:
    database = server.create_database()
    database.sql(WORLD)
    database.sql(BY_VISIT)
    yield database
    server.drop_database(database)


def ask(database: Any, relation: str = "line") -> str | None:
    with database.connect("alice") as alice:
        alice.execute("set dp.max_rows_contributed = 1; set dp.epsilon = 1; set dp.fresh = on")
        return state(alice, f"select dp_count(*) from {relation}")


@pytest.mark.parametrize("change", OTHERWISE)
def test_equal_names_make_no_equal_units(lines: Any, change: str) -> None:
    """Otherwise the account would show what units of two kinds lost, each a part."""
    assert ask(lines) is None
    lines.sql(OTHERWISE[change])
    assert ask(lines) == "PD012"


@pytest.mark.parametrize("change", AS_BEFORE)
def test_what_is_made_again_or_renamed_goes_on(lines: Any, change: str) -> None:
    assert ask(lines) is None
    if change != "nothing":
        lines.sql(AS_BEFORE[change])
    assert ask(lines) is None
    assert lines.sql("select epsilon from dp.root_total") == [(2,)]


#: Stands for a dump that was loaded: numbers of relations are those of another database.
RESTORED = """
update dp.covered set ways = regexp_replace(ways, '>[0-9]+>', '>1259>');
update dp.ledger_incarnation set token = gen_random_uuid();
"""
ACKNOWLEDGED = "select dp.acknowledge_restore('a test')"


def test_a_restore_finds_numbers_by_names_once(lines: Any) -> None:
    """Numbers of another database mean nothing, or something else; those of here decide again."""
    assert ask(lines) is None
    lines.sql(RESTORED)
    assert ask(lines) == "PD051"
    lines.sql(ACKNOWLEDGED)
    assert ask(lines) is None
    lines.sql(OTHERWISE["renamed twin"])
    assert ask(lines) == "PD012"


def test_a_restore_finds_the_ways_of_declarations_with_cut_keys(lines: Any) -> None:
    """Without the cut rows of line lead to units in two ways, so that neither was the account's."""
    lines.sql("alter table line alter l_else set not null")
    lines.sql("alter table line add foreign key (l_else) references s1.other")
    lines.sql("select dp.link('line', 's1.other', array['l_else'], follow => false)")
    assert ask(lines) is None
    ways = "select relation::text, ways from dp.covered order by 1"
    before = lines.sql(ways)
    lines.sql(RESTORED)
    lines.sql(ACKNOWLEDGED)
    assert lines.sql(ways) == before
    lines.sql("alter table line rename l_visit to l_call")
    assert ask(lines) is None


def test_of_ways_that_a_restore_does_not_find_names_tell(lines: Any) -> None:
    assert ask(lines) is None
    lines.sql(f"{ANEW}; {RESTORED}; {ACKNOWLEDGED}")
    assert lines.sql("select count(*) from dp.covered where ways is null") == [(1,)]
    lines.sql(f"{KEY} s2.visit")
    assert ask(lines) == "PD012"
    lines.sql(f"{ANEW}; {KEY} s1.visit")
    assert ask(lines) is None


def test_a_key_that_may_lead_nowhere_makes_no_other_units(lines: Any) -> None:
    """The hint is followed word for word: the unit is the value of the same column."""
    assert ask(lines, "s1.visit") is None
    lines.sql("alter table s1.visit alter v_one drop not null")
    with lines.connect("alice") as alice:
        alice.execute("set dp.max_rows_contributed = 1")
        with pytest.raises(psycopg.Error) as caught:
            alice.execute("select dp_count(*) from s1.visit")
    link = "dp.link('s1.visit', 'person', array['v_one'], nulls => 'excluded')"
    assert "nulls => 'excluded'" in str(caught.value.diag.message_hint)
    lines.sql(f"select {link}")
    assert ask(lines, "s1.visit") is None
    lines.sql("alter table s1.visit drop constraint visit_v_one_fkey")
    assert ask(lines, "s1.visit") is None
    assert ask(lines) is None


def test_a_unit_column_is_found_by_name_once_it_was_dropped(lines: Any) -> None:
    """The hint is followed word for word; while the column is there its number decides."""
    protect = "select dp.protect('s1.visit', privacy_unit => 'v_two')"
    lines.sql(f"select dp.unprotect('person'); {protect}")
    assert ask(lines) is None
    with lines.connect() as owner:
        owner.execute("alter table s1.visit rename v_two to v_old")
        owner.execute("alter table s1.visit add v_two int not null default 3")
        assert state(owner, protect) == "PD040"
        owner.execute("alter table s1.visit drop v_two; alter table s1.visit rename v_old to v_two")
        assert state(owner, protect) is None
        owner.execute("alter table s1.visit drop v_two")
        owner.execute("alter table s1.visit add v_two int not null default 3")
        assert ask(lines) == "PD012"
        assert state(owner, protect) is None
    assert ask(lines) is None
