"""Each way of charging writes down all relations whose rows it reads, also those joined to find units."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from asking import state

#: Rows of line find their units by a link: no key keeps a visit for its lines, so that without a
#: visit its lines are not counted.
WORLD = """
create table person (p_id int primary key);
create table visit (v_id int primary key, v_person int not null
  constraint visit_person references person);
create table line (l_visit int, l_kind int not null);
create schema copy;
grant create, usage on schema copy to alice;
insert into person select i from generate_series(1, 30) i;
insert into visit select i, 1 + i % 30 from generate_series(1, 60) i;
insert into line select i, i % 3 from generate_series(1, 60) i;
select dp.grant_budget('alice', 1000, 1e-3);
select dp.link('line', 'visit', array['l_visit'], nulls => 'excluded');
select dp.protect('person', privacy_unit => 'p_id');
select dp.set_domain('line', 'l_kind', 0, 2);
select dp.expose('line');
"""
BY_KIND = "select l_kind, dp_count(*) from line group by l_kind"
RELEASE = f"select dp.release('kinds', $q${BY_KIND}$q$, mechanism => 'identity')"
#: Each is charged for lines alone, as far as its text says.
WAYS = {
    "question": "select dp_count(*) from line",
    "groups": BY_KIND,
    "part of a statement": "select 1 + (select dp_sum(l_kind) from line)",
    "generic plan": "set plan_cache_mode = force_generic_plan;"
    " prepare counted as select dp_count(*) from line; execute counted; execute counted;"
    " deallocate counted; reset plan_cache_mode",
    "view": "select count(*) from dpv.line",
    "release": RELEASE,
    "refreshed release": f"{RELEASE}; select dp.refresh_release('kinds')",
    "synthesis": "call dp.synthesize('copy', array['line']::regclass[], 1, 1e-6,"
    " d_max => '{\"line\": 10}')",
    "synthesis of parents, too": "call dp.synthesize('copy', "
    "array['line', 'visit', 'person']::regclass[], 1, 1e-6,"
    ' d_max => \'{"line": 10, "visit": 10}\', placeholders => true)',
}
#: Makes of visit what is protected row by row.
OTHERWISE = (
    "alter table visit drop constraint visit_person",
    "select dp.unlink('line', 'visit', array['l_visit'])",
    "select dp.protect('visit')",
)


@pytest.fixture
def lines(server: Any) -> Iterator[Any]:
    database = server.create_database()
    database.sql(WORLD)
    yield database
    server.drop_database(database)


@pytest.mark.parametrize("way", WAYS)
def test_what_is_joined_to_find_units_is_recorded(lines: Any, way: str) -> None:
    """Without one visit its lines are not counted: the account shows what this row lost."""
    with lines.connect("alice") as alice:
        alice.execute("set dp.epsilon = 1; set dp.delta = 1e-6; set dp.max_rows_contributed = 10")
        for statement in WAYS[way].split("; "):
            alice.execute(statement)
    recorded = {name for (name,) in lines.sql("select relation_name::text from dp.covered")}
    assert {"line", "visit"} <= recorded
    with lines.connect() as owner:
        *before, last = OTHERWISE
        for statement in before:
            owner.execute(statement)
        assert state(owner, last) == "PD040"
