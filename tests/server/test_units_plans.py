"""Privacy units along foreign keys: what is read, and what need not be."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.server.asking import refused
from tests.server.in_service import in_service, value_in_service

pytestmark = pytest.mark.server

#: Keeps how often ways to units were looked for when a question had been explained.
COUNTED = in_service("""
from dpsql.server import handlers
right, GD["calls"] = handlers._explain, None
def explained(*given):
    found = right(*given)
    calls = "select calls from pg_stat_xact_user_functions where funcid = 'dp.unit_paths'::regproc"
    GD["calls"] = plpy.execute(calls)[0]["calls"]
    return found
handlers._explain = explained
""")
CALLS = value_in_service('return GD["calls"]')


@pytest.mark.parametrize("analysed", ["", "pg_class", "pg_class, pg_namespace"])
def test_paths_are_looked_for_three_times_for_each_relation(unit_shop: Any, analysed: str) -> None:
    """For the relation's facts, its fingerprint, and the accounts that would pay, whatever the plans.

    More often where another transaction, as autovacuum's, ends in between: not a hundred times.
    """
    if analysed:
        unit_shop.sql(f"analyze {analysed}")
    unit_shop.sql(f"alter database {unit_shop.name} set track_functions = 'all'")
    asked = "select * from dp.explain('select dp_count(*) from item join orders using (o)')"
    seen = []
    for _ in range(100):
        with unit_shop.connect() as session:
            session.execute(COUNTED)
            session.execute(asked)
            seen += session.execute(f"select {CALLS}::int").fetchone()
        assert seen[-1] >= 6
        if seen[-1] == 6:
            return
        time.sleep(0.3)
    pytest.fail(f"calls: {seen}")


@pytest.mark.parametrize(
    ("statement", "once"),
    [
        ("select {} from customer", True),
        ("select {} from customer join nation using (n) where name = 'one'", True),
        ("select {} from customer a join customer b using (c)", True),
        ("select {} from orders", False),
        ("select {} from customer join orders using (c)", False),
    ],
)
def test_keys_that_give_a_unit_one_result_make_the_bound_public(
    unit_asker: Any, statement: str, once: bool
) -> None:
    """Discrete Laplace of scale 1 is within 3 with 95 %, and no noise goes into the bound."""
    unit_asker.execute("set dp.epsilon = 1")
    ends = "dp_interval_low(dp_count(*)), dp_interval_high(dp_count(*))"
    ((low, high),) = unit_asker.execute(statement.format(ends)).fetchall()
    assert (high - low <= 6) is once


#: A piece is in a pack of a customer, which its key names; some pieces are in none.
PACKS = """
create table pack (c int not null references customer, p int not null, primary key (c, p));
insert into pack select g, 1 + g % 3 from generate_series(1, 3000) g;
create table piece (id int primary key, c int{0}, p int{0}, x int not null,
  foreign key (c, p) references pack);
insert into piece select g, c, p, g % 10 from generate_series(1, 6000) g
  join pack on c = 1 + g % 2000;
"""
LOOSE = """
insert into piece values (6001, null, 1, 0), (6002, 1, null, 0), (6003, 999999, null, 0), (6004, null, null, 0);
select dp.link('piece', 'pack', array['c', 'p'], nulls => 'excluded')
"""


@pytest.mark.parametrize("loose", [False, True])
def test_parents_that_only_hand_the_unit_on_are_not_read(unit_shop: Any, loose: bool) -> None:
    unit_shop.sql(PACKS.format("" if loose else " not null") + LOOSE * loose)
    one, both = "public.piece", "public.pack, public.piece"
    with unit_shop.connect() as owner:
        for asked, read, redundant in (
            ("dp_count(*) from piece", one, None),
            ("dp_count(distinct c) from piece", one, None),
            ("dp_sum(x, 0, 9) from piece where x > 4", one, None),
            ("dp_count(*) from piece a join piece b using (c)", one, None),
            ("dp_count(*) from piece a join piece b on a.x = b.x", one, None),
            ("dp_count(*) from piece join pack using (c, p)", one, "public.pack"),
            ("dp_count(*) from piece i join pack k on i.c = k.c", both, None),
            ("dp_count(*) from piece i join pack k using (c, p) where k.p > 1", both, None),
        ):
            rows = owner.execute("select * from dp.explain(%s)", [f"select {asked}"]).fetchall()
            told = dict(rows)
            assert told["privacy unit"] == "public.pack.c", asked
            assert told["private relations"] == read, asked
            assert ('"pack"' in told["counting SQL"]) is (read == both), asked
            assert told.get("redundant joins", "None:").partition(":")[0] == str(redundant), asked


def test_none_of_several_parents_that_hand_the_unit_on_is_read(unit_shop: Any) -> None:
    unit_shop.sql(
        PACKS.format(" not null")
        + "create table slice (c int, p int, s int, primary key (c, p, s), foreign key (c, p) references pack);"
        " create table crumb (c int not null, p int not null, s int not null,"
        " foreign key (c, p, s) references slice)"
    )
    explain = "select value from dp.explain('select dp_count(*) from crumb') where item = 'private relations'"
    assert unit_shop.sql(explain) == [("public.crumb",)]
    # the way is cut between the two: only the first key says that a parent is there
    unit_shop.sql(
        "alter table slice drop constraint slice_c_p_fkey;"
        " select dp.link('slice', 'pack', array['c', 'p'], nulls => 'excluded')"
    )
    assert unit_shop.sql(explain) == [("public.crumb, public.pack",)]


@pytest.mark.parametrize("loose", [False, True])
def test_units_that_are_handed_on_are_found_without_the_parent(
    unit_shop: Any, unit_asker: Any, loose: bool
) -> None:
    unit_shop.sql(PACKS.format("" if loose else " not null") + LOOSE * loose)
    shown = unit_shop.sql("select privacy_unit from dp.relations where relation_name = 'piece'")
    assert shown == [("customer.c by piece.(c, p), pack.c",)]
    # a unit counts once, and noise of scale 1/50 is 0 but for a probability below 1e-20
    ((units,),) = unit_asker.execute("select dp_count(distinct c) from piece").fetchall()
    assert units == 2000
    # noise beyond 3 % has a probability below 1e-12, as above
    counting = "select dp_count(*) from piece"
    ((value,),) = unit_asker.execute(counting).fetchall()
    assert abs(value - 6000) < 180
    error = refused(unit_asker, "select c, dp_count(*) from piece group by c")
    assert "names the privacy unit" in str(error)
    # the key that a plan relies on is watched, though the parent is not read
    unit_shop.sql("alter table piece drop constraint piece_c_p_fkey")
    if not loose:
        assert refused(unit_asker, counting).sqlstate == "PD012"
        return
    unit_shop.sql("insert into piece select 7000 + g, g, 9, 0 from generate_series(1, 2000) g")
    ((value,),) = unit_asker.execute(counting).fetchall()
    assert abs(value - 6000) < 180
