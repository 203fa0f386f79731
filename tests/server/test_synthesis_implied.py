"""Foreign keys without links of their own hold in the copy, since others do."""

from __future__ import annotations

from typing import Any

from tests.server.copying import office
from tests.server.test_synthesis_units import ROWS

VALUES = """
alter table public.desk add k_sort boolean;
select dp.set_domain('person', 'u_wing', array['east', 'west'], includes_null => true);
select dp.set_domain('mail', 'm_day', date '2024-01-01', date '2024-01-20');
select dp.set_domain('paper', 'x_what', array['a'], includes_null => true);
select dp.set_domain('drawer', 'w_copies', 0, 5, 1, true);
"""
KEYS = """
select conname::text from pg_constraint
 where connamespace = 'syn'::regnamespace and contype = 'f' and convalidated
"""


def test_implied_keys_are_constraints_of_the_copy(database: Any) -> None:
    office(database)
    database.sql(ROWS)
    with database.connect(user="owner1") as owner:
        owner.execute(VALUES)
    database.sql("select dp.grant_budget('alice', epsilon => 10, delta => 1e-6)")
    database.sql("grant select, references on public.room to alice")
    database.sql("create schema syn authorization alice")
    alice = database.connect(user="alice")
    alice.execute("set dp.max_rows_contributed = 5")
    alice.execute(
        "call dp.synthesize(target => 'syn', relations => array['person', 'desk', 'mail', 'paper',"
        " 'drawer']::regclass[], epsilon => 10, delta => 1e-6, placeholders => true)"
    )
    made = {row[0] for row in database.sql(KEYS)}
    assert {"paper_desk", "paper_room", "drawer_desk", "drawer_w_owner_fkey"} <= made
    assert {"person_u_boss_fkey", "mail_m_from_fkey", "mail_m_to_fkey"} <= made
