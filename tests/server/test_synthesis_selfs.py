"""Copies of tables whose rows refer to rows of the same table: learnt, without cycles.

Noise is drawn for real: counts are compared within bounds that are met but for less than 1e-9.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.copying import run

STAFF = """
create table public.staff (s_id int primary key, s_boss int references public.staff, s_rank text not null);
insert into public.staff select i, null, 'chief' from generate_series(1, 100) i;
insert into public.staff select i, 1 + i % 100, 'lead' from generate_series(101, 600) i;
insert into public.staff select i, 101 + i % 500, 'clerk' from generate_series(601, 3600) i;
select dp.link('staff', 'staff', array['s_boss'], follow => false);
select dp.protect('staff', privacy_unit => 's_id');
select dp.set_domain('staff', 's_rank', array['chief', 'lead', 'clerk']);
select dp.set_root_cap('staff', 1000, 1e-4);
select dp.grant_budget('alice', epsilon => 100, delta => 1e-5);
create schema syn authorization alice;
"""
CALL = "call dp.synthesize('syn', array['staff']::regclass[], epsilon => 20, delta => 1e-6)"
CYCLES = """
with recursive up(s_id, at, steps) as (
  select s_id, s_boss, 1 from syn.staff
  union all
  select up.s_id, s.s_boss, up.steps + 1 from up join syn.staff as s on s.s_id = up.at where up.steps < 200)
select count(*) from up where steps = 200
"""


@pytest.fixture
def staff(database: Any) -> Any:
    run(database, STAFF)
    return database


def test_who_refers_to_whom_is_learnt(staff: Any) -> None:
    alice = staff.connect(user="alice")
    told: list[str] = []
    alice.add_notice_handler(lambda notice: told.append(str(notice.message_primary)))
    alice.execute(CALL)
    (mending,) = [t for t in told if "set_degree_bound" in t]
    staff.sql(mending[mending.index("SELECT") :].replace("100", "8"))
    alice.execute(CALL[:-1] + ", replace => true)")
    links = {
        (boss, rank): number
        for boss, rank, number in alice.execute(
            "select p.s_rank, c.s_rank, count(*) from syn.staff as c"
            " join syn.staff as p on c.s_boss = p.s_id group by 1, 2"
        ).fetchall()
    }
    total = sum(links.values())
    ((rows, roots),) = alice.execute(
        "select count(*), count(*) filter (where s_boss is null) from syn.staff"
    ).fetchall()
    # at random a fifth of the clerks would have leads: they have most of them
    assert links["lead", "clerk"] > 0.6 * total
    assert links["chief", "lead"] > 0.05 * total
    assert rows == total + roots
    assert alice.execute(CYCLES).fetchone() == (0,)
    ((most,),) = alice.execute(
        "select max(n) from (select count(*) as n from syn.staff where s_boss is not null group by s_boss) x"
    ).fetchall()
    assert most <= 8
    alice.execute("select * from dp.synthesis_report('syn')")
