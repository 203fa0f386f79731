"""Tables of which nothing is learnt but how many rows there are."""

from __future__ import annotations

import json
from typing import Any

MADE = """
create table public.up (id int primary key);
create table public.down (a int not null references public.up);
insert into public.up select generate_series(1, 500);
insert into public.down select 1 + i % 100 from generate_series(1, 2000) i;
insert into public.down select 1 from generate_series(1, 100000);
select dp.protect('public.up', privacy_unit => 'id');
select dp.grant_budget('alice', epsilon => 10, delta => 1e-6);
create schema syn authorization alice;
"""


def test_tables_without_attributes_are_copied_with_their_numbers_of_rows(database: Any) -> None:
    for statement in MADE.strip().split("\n"):
        database.sql(statement)
    alice = database.connect(user="alice")
    alice.execute("set dp.max_rows_contributed = 5")
    alice.execute(
        "call dp.synthesize(target => 'syn', relations => array['up', 'down']::regclass[],"
        " epsilon => 5, delta => 1e-6)"
    )
    rows = database.sql(
        "select json_build_array((select count(*) from syn.up), count(*)) from syn.down"
    )
    up, down = json.loads(rows[0][0]) if isinstance(rows[0][0], str) else rows[0][0]
    # noise of 100 units more, or of a tail that is not there, is below 1e-9
    assert 400 < up < 600
    # 100 units have 20 rows each, beyond the 5 that attributes would be learnt from; the 100,000
    # more of one of them hide in noise
    assert 500 < down < 20_000
    assert database.sql("select count(*) from syn.down where a is null")[0][0] == 0
