"""What is reported of a synthetic copy, and to whom."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.asking import refused
from tests.server.copying import run

pytestmark = pytest.mark.server

MADE = """
create table public.person (p_id int primary key, p_kind text not null, p_old boolean);
create table public.mail (m_id int primary key, m_person int not null references public.person, m_sort text not null check (m_sort <> ''));
insert into public.person select i, (array['a', 'b'])[1 + i % 2], i % 3 = 0 from generate_series(1, 1000) i;
insert into public.mail select i, 1 + i % 1000, (array['b', 'a'])[1 + i % 2] from generate_series(1, 3000) i;
alter table public.person owner to owner1;
alter table public.mail owner to owner1;
grant dp_owner to owner1;
create schema syn authorization alice;
"""
DECLARED = """
select dp.protect('public.person', privacy_unit => 'p_id');
select dp.set_domain('public.person', 'p_kind', array['a', 'b']);
select dp.set_domain('public.mail', 'm_sort', array['a', 'b']);
select dp.grant_budget('alice', epsilon => 1000, delta => 1e-4);
"""
CALL = """call dp.synthesize('syn', array['person', 'mail']::regclass[], {}, 1e-6,
  d_max => '{{"mail": 4}}', replace => true)"""
MOST = "select max(n) from (select count(*) as n from syn.mail group by m_person) as g"
EXACT = "exact, for owners only: do not publish"
#: Links as they would be if they were drawn at random; kinds and sorts are halves each.
SHUFFLE = """
update syn.mail as m set m_person = o.m_person from (
  select a.m_id, b.m_person
    from (select m_id, row_number() over (order by m_id) as n from syn.mail) as a
    join (select m_person, row_number() over (order by md5(m_id::text)) as n from syn.mail) as b using (n)) as o
 where o.m_id = m.m_id
"""


def copied_well(alice: Any) -> bool:
    """Whether nobody has far more mail than the three that all have."""
    return bool(alice.execute(MOST).fetchone()[0] < 50)


@pytest.fixture(scope="module")
def copied(server: Any) -> Iterator[Any]:
    database = server.create_database()
    run(database, MADE)
    for statement in DECLARED.strip().split("\n"):
        database.sql(statement, user="owner1")
    with database.connect("alice") as alice:
        # noise is taken for people with very much mail in less than one copy of a million, who
        # would spoil all comparisons: in three copies less than 1e-17
        for epsilon in (30, 30.001, 30.002):
            alice.execute(CALL.format(epsilon))
            if copied_well(alice):
                break
        alice.execute("grant usage on schema syn to owner1")
        alice.execute("grant select on all tables in schema syn to owner1")
    yield database
    server.drop_database(database)


@pytest.fixture
def alice(copied: Any) -> Iterator[Any]:
    with copied.connect("alice") as session:
        session.execute("begin")
        yield session
        session.execute("rollback")


def read(session: Any, exact: bool = False) -> dict[tuple[str, ...], tuple[Any, ...]]:
    """Return value and what is expected by part, relation, what, and whether it is exact."""
    rows = session.execute("select * from dp.synthesis_report('syn', %s)", (exact,)).fetchall()
    found = {
        (part, relation, what, EXACT in (note or "")): (value, expected)
        for part, relation, what, value, expected, note in rows
    }
    assert len(found) == len(rows)
    return found


def errors(found: Any, part: str, *, exact: bool) -> dict[str, float]:
    """Return errors by relation and what is measured."""
    return {f"{r} {w}": v[0] for (p, r, w, e), v in found.items() if p == part and e == exact}


def test_a_copy_of_much_budget_has_small_errors(copied: Any, alice: Any) -> None:
    found = read(alice)
    assert not any(exact for *_, exact in found)
    size, noisy = found["size", "syn.person", "rows", False]
    assert size == round(noisy)
    assert size == copied.sql("select count(*) from syn.person")[0][0]
    for (part, *_), (value, _) in found.items():
        if part == "keys":
            assert value == 0
        if part in ("within", "across", "degrees"):
            # some 0.03 in trials; noise is that of a few rows, rows are a thousand and more
            assert value < 0.2
    assert {"budget", "size", "keys", "within", "across", "degrees"} == {key[0] for key in found}
    assert abs(sum(v for (p, _, w, _), (v, _) in found.items() if w.startswith("share")) - 1) < 1e-9


def test_the_owner_compares_with_the_original(copied: Any) -> None:
    with copied.connect("owner1") as owner:
        found = read(owner, exact=True)
        assert found["size", "syn.mail", "rows", True][1] == 3000
        exact = errors(found, "within", exact=True)
        assert max(exact.values()) < 0.2
        # the same number by plain SQL
        (shares,) = copied.sql(
            "select sum(abs(coalesce(a.s, 0) - coalesce(b.s, 0))) / 2 from"
            " (select m_sort, count(*) / sum(count(*)) over () as s from mail group by 1) as a"
            " full join (select m_sort, count(*) / sum(count(*)) over () as s from syn.mail group by 1) as b"
            " using (m_sort)"
        )
        assert exact["syn.mail 1-way error, mean"] == pytest.approx(float(shares[0]), abs=1e-12)


def test_shuffled_links_have_large_errors_across_and_none_within(copied: Any, alice: Any) -> None:
    before = read(alice)
    alice.execute(SHUFFLE)
    after = read(alice)
    key = ("across", "syn.mail (m_person)", "2-way error, largest", False)
    # of kind and sort: 0 if each person has mail of one sort, 1/2 if they are independent; 3000
    # links drawn by a fixed hash are 0.01 from that
    assert before[key][0] < 0.2
    assert after[key][0] > 0.3
    assert errors(after, "within", exact=False) == errors(before, "within", exact=False)


def test_the_true_errors_see_shuffled_links_too(copied: Any) -> None:
    key = ("across", "syn.mail (m_person)", "2-way error, largest", True)
    with copied.connect("owner1") as owner:
        assert read(owner, exact=True)[key][0] < 0.2
    with copied.connect() as admin:
        admin.execute("begin")
        admin.execute(SHUFFLE)
        assert read(admin, exact=True)[key][0] > 0.3
        admin.execute("rollback")


def test_violated_keys_are_counted(alice: Any) -> None:
    for statement in (
        "alter table syn.mail drop constraint mail_m_person_fkey",
        "alter table syn.mail drop constraint mail_pkey",
        "alter table syn.mail alter m_sort drop not null, alter m_id drop not null",
        "alter table syn.mail drop constraint mail_m_sort_check",
        "alter table syn.mail add constraint c check (m_sort <> '') not valid",
        "insert into syn.mail select m_id, -1, m_sort from syn.mail limit 3",
        "insert into syn.mail select -m_id, m_person, null from syn.mail where m_id > 0 limit 5",
    ):
        alice.execute(statement)
    found = read(alice)
    assert found["keys", "syn.mail (m_person)", "orphans", False][0] >= 3
    assert found["keys", "syn.mail (m_id)", "duplicates", False] == (3, 0)
    assert found["keys", "syn.mail", "NULL in NOT NULL", False] == (5, 0)
    assert found["keys", "syn.mail", "CHECK not validated", False] == (1, 0)


def test_only_the_owner_of_all_of_it_compares_with_the_original(copied: Any, alice: Any) -> None:
    exact = "select * from dp.synthesis_report('syn', true_data => true)"
    error = refused(alice, exact)
    assert error.sqlstate == "PD070"
    assert "owns all protected relations" in error.diag.message_detail
    # one of two
    copied.sql("alter table public.mail owner to postgres")
    try:
        with copied.connect("owner1") as owner:
            assert refused(owner, exact).sqlstate == "PD040"
    finally:
        copied.sql("alter table public.mail owner to owner1")
    # the copy is read with the owner's rights; the hint has what whoever made it can grant
    with copied.connect("alice") as maker, copied.connect("owner1") as owner:
        maker.execute("revoke usage on schema syn from owner1")
        try:
            error = refused(owner, exact)
        finally:
            maker.execute("grant usage on schema syn to owner1")
        assert (error.sqlstate, error.diag.message_detail) == (
            "PD010",
            "permission denied for schema syn.",
        )
        assert "GRANT USAGE ON SCHEMA syn and" in error.diag.message_hint
    # a function of the owner's with the owner's rights is not the owner
    copied.sql(
        "create function public.peek() returns bigint language sql security definer"
        " as $$select count(*) from dp.synthesis_report('syn', true)$$;"
        " alter function public.peek() owner to owner1; grant execute on function public.peek() to alice"
    )
    with copied.connect("alice") as other:
        assert refused(other, "select public.peek()").sqlstate == "PD070"


#: Sequences outlive the subtransaction that reading is rolled back with.  Each holds the OID of a role, or 1.
HEARD = """
create schema trap authorization alice;
create sequence trap.who; create sequence trap.as_whom;
alter sequence trap.who owner to alice; alter sequence trap.as_whom owner to alice;
grant usage on schema trap to owner1;
grant all on sequence trap.who, trap.as_whom to owner1;
"""
LISTEN = """
create function trap.told() returns int language plpgsql as $$ begin
  perform setval('trap.who', current_user::regrole::oid::bigint);
  perform setval('trap.as_whom', dp.caller()::bigint); return 1;
exception when others then
  perform setval('trap.who', current_user::regrole::oid::bigint); perform setval('trap.as_whom', greatest((select last_value from trap.as_whom), 1)); return 1; end $$;
create function trap.listen(int) returns int language plpgsql immutable as $$ begin return trap.told(); end $$;
"""


RUNS = {("alice", "nobody")}


@pytest.mark.parametrize(
    ("trap", "heard"),
    [
        ("create index trapped on syn.person (p_id) where trap.listen(1) = 1", RUNS),
        ("create statistics syn.trapped on (trap.listen(1)), p_kind from syn.person", RUNS),
        # a CHECK is not looked at where answers are made, whatever the reader has set
        ("alter table syn.mail add constraint trapped check (trap.listen(1) = 1)", set()),
    ],
)
def test_code_of_the_maker_gets_no_rights_of_the_reader(
    copied: Any, trap: str, heard: set[tuple[str, str]]
) -> None:
    """Reading a table runs what its owner put where the planner looks."""
    copied.sql(HEARD)
    try:
        with copied.connect("alice") as alice:
            alice.execute(LISTEN)
            alice.execute(trap)
        copied.sql("select setval('trap.who', 1, false), setval('trap.as_whom', 1, false)")
        with copied.connect("owner1") as owner:
            owner.execute("set constraint_exclusion = on")
            read(owner, exact=True)
        found = set(
            copied.sql(
                "select w.last_value::oid::regrole::text, case a.last_value when 1 then 'nobody'"
                " else a.last_value::oid::regrole::text end"
                " from trap.who as w, trap.as_whom as a where w.is_called"
            )
        )
        assert found == heard
    finally:
        copied.sql("alter table syn.mail drop constraint if exists trapped")
        copied.sql("drop index if exists syn.trapped; drop statistics if exists syn.trapped")
        copied.sql("drop schema trap cascade")


@pytest.mark.parametrize("tables", [("mail",), ("mail", "person")])
def test_tables_of_others_than_their_maker_are_not_read(
    copied: Any, tables: tuple[str, ...]
) -> None:
    for table in tables:
        copied.sql(f"alter table syn.{table} owner to bob")
    try:
        with copied.connect("owner1") as owner:
            error = refused(owner, "select * from dp.synthesis_report('syn')")
        assert (error.sqlstate, "another role" in str(error)) == ("PD010", True)
    finally:
        for table in tables:
            copied.sql(f"alter table syn.{table} owner to alice")


def test_what_is_no_synthesis_any_more_is_refused(copied: Any) -> None:
    with copied.connect("alice") as alice:
        assert refused(alice, "select * from dp.synthesis_report('nope')").sqlstate == "PD040"
        assert refused(alice, "select * from dp.synthesis_report(null)").sqlstate == "PD040"
    copied.sql("grant dp_analyst to bob")
    with copied.connect("bob") as bob:
        assert refused(bob, "select * from dp.synthesis_report('syn')").sqlstate == "PD040"
    for change in (
        "alter table syn.mail rename to letter",
        "select dp.hide_synthesis('syn'); alter table syn.mail alter m_sort type varchar",
        "alter table syn.mail enable row level security",
        "alter table syn.mail rename to letter; create view syn.mail as select * from syn.letter",
    ):
        with copied.connect("alice") as session:
            session.execute("begin")
            session.execute(change)
            error = refused(session, "select * from dp.synthesis_report('syn')")
            assert error.sqlstate == "PD010", change
