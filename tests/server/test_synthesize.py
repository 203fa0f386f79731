"""``CALL dp.synthesize``: what it measures, pays, keeps and refuses.

Noise is drawn for real: counts are compared within bounds that are met but for less than 1e-9.
"""

from __future__ import annotations

import sys
from typing import Any

import psycopg
import pytest

from tests.server.copying import run, spent
from tests.server.test_releases_pgm import HIDE

SHOP = """
create table public.land (n_id int primary key, n_name text not null);
create table public.guest (g_id int primary key, g_land int not null references public.land, g_kind text not null);
create table public.visit (v_id bigint generated always as identity primary key,
  v_guest int not null references public.guest, v_paid text, v_note varchar(20) not null default '-',
  check (v_paid <> 'never'));
insert into public.land select i, 'land ' || i from generate_series(1, 5) i;
insert into public.guest select i, 1 + i % 5, case when i % 4 = 0 then 'club' else 'single' end
  from generate_series(1, 4000) i;
insert into public.visit (v_guest, v_paid) select g_id, case when g_kind = 'club' then 'card' else 'cash' end
  from public.guest cross join generate_series(1, 3) k where k <= case when g_kind = 'club' then 3 else 1 end;
insert into public.visit (v_guest, v_paid) select g_id, null from public.guest where g_id % 2 = 0;
select dp.declare_public('land');
select dp.protect('guest', privacy_unit => 'g_id');
select dp.set_domain('guest', 'g_kind', array['club', 'single']);
select dp.set_domain('visit', 'v_paid', array['card', 'cash'], includes_null => true);
select dp.set_root_cap('guest', 1000, 1e-4);
select dp.grant_budget('alice', epsilon => 100, delta => 1e-5);
grant select, references on public.land to alice;
create schema syn authorization alice;
"""
CALL = (
    "call dp.synthesize('syn', array['guest', 'visit']::regclass[], epsilon => 8, delta => 1e-6,"
    " d_max => '{\"visit\": 4}'{more})"
)


@pytest.fixture
def shop(database: Any) -> Any:
    run(database, SHOP)
    return database


def call(session: Any, more: str = "") -> None:
    session.execute(CALL.replace("{more}", more))


def test_a_copy_has_the_rows_the_links_and_what_they_have_in_common(shop: Any) -> None:
    alice = shop.connect(user="alice")
    call(alice)
    assert spent(shop) == pytest.approx(8)
    guests, lands = shop.sql("select count(*), count(distinct g_land) from syn.guest")[0]
    assert abs(guests - 4000) < 100  # standard deviation of 1: epsilon 8 over four parts
    assert lands == 5
    rows = shop.sql(
        "select g_kind, coalesce(v_paid, '-'), count(*) from syn.visit join syn.guest"
        " on v_guest = g_id group by 1, 2"
    )
    found = {(kind.strip(), paid): number for kind, paid, number in rows}
    truth = {
        ("club", "card"): 3000,
        ("single", "cash"): 3000,
        ("club", "-"): 1000,
        ("single", "-"): 1000,
    }
    for key, number in truth.items():
        assert abs(found.get(key, 0) - number) < 600, found
    # at random a third of these would be among the others
    assert found.get(("club", "cash"), 0) + found.get(("single", "card"), 0) < 800, found
    none = shop.sql("select count(*) from syn.visit where v_paid is null")[0][0]
    assert abs(none - 2000) < 500
    counts = "select count(*) n from syn.visit group by v_guest"
    # noise of a standard deviation of 2 in a bin: none has more than 4, and few seem to
    assert shop.sql(f"select count(*) from ({counts}) d where n > 4")[0][0] < 80
    assert shop.sql(f"select max(n) from ({counts}) d")[0][0] < 64


def test_what_was_measured_is_found_again_and_not_paid_again(shop: Any) -> None:
    shop.sql(r"alter table public.visit add v_code bytea default '\xde'")
    alice = shop.connect(user="alice")
    call(alice)
    first = shop.sql("select md5(string_agg(v::text, '|' order by v_id)) from syn.visit v")
    alice.execute("set bytea_output = escape")  # how the default is shown
    call(alice, ", replace => true")
    assert spent(shop) == pytest.approx(8)
    assert shop.sql("select md5(string_agg(v::text, '|' order by v_id)) from syn.visit v") == first
    shop.sql("insert into public.land values (0, 'land 0')")
    call(alice, ", replace => true")
    assert spent(shop) == pytest.approx(16)  # lands have other places now
    alice.execute("set dp.fresh = on")
    call(alice, ", replace => true")
    assert spent(shop) == pytest.approx(24)
    assert shop.sql("select md5(string_agg(v::text, '|' order by v_id)) from syn.visit v") != first


def test_a_table_that_is_not_shown_is_named(shop: Any) -> None:
    shop.sql("create view dpv.syn_guest as select 1 as one")
    alice = shop.connect(user="alice")
    told: list[str] = []
    alice.add_notice_handler(lambda d: told.append(str(d.message_primary)))
    call(alice, ', row_counts => \'{"guest": 9, "visit": 9}\'')
    missed = "syn.guest is not shown in the schema dpv: dpv.syn_guest is there already"
    assert [text for text in told if text.startswith(missed)] == [
        f"{missed}; read it under its own name"
    ]
    assert alice.execute("select count(*) from dpv.syn_visit").fetchone() == (9,)
    del told[:]
    alice.execute("select dp.show_synthesis('syn')")
    assert [text[: len(missed)] for text in told] == [missed]


def test_declared_numbers_of_rows_hold_exactly(shop: Any) -> None:
    alice = shop.connect(user="alice")
    call(alice, ', row_counts => \'{"guest": 1234, "visit": 4321}\'')
    assert shop.sql("select (select count(*) from syn.guest), count(*) from syn.visit") == [
        (1234, 4321)
    ]
    shares = (
        "select count(*) from dp.synthesis_report('syn') where what = 'share of number of rows'"
    )
    assert alice.execute(shares).fetchone() == (0,)  # nothing is paid for what is public
    call(alice, ", row_counts => '{\"guest\": 1234}', replace => true")
    assert alice.execute(shares).fetchone() == (1,)


@pytest.mark.parametrize("method", ["aim", "residual_planner"])
def test_tables_are_measured_by_other_mechanisms(shop: Any, method: str) -> None:
    alice = shop.connect(user="alice")
    call(alice, f", method => '{method}'")
    clubs = shop.sql("select count(*) from syn.guest where g_kind = 'club'")[0][0]
    assert abs(clubs - 1000) < 200


@pytest.mark.skipif(sys.version_info < (3, 11), reason="mbi needs Python 3.11")
@pytest.mark.parametrize("method", ["mst", "aim_pgm"])
def test_tables_are_sampled_from_graphical_models(shop: Any, method: str) -> None:
    alice = shop.connect(user="alice")
    call(alice, f", method => '{method}'")
    assert spent(shop) == pytest.approx(8)
    # noise of a count has a standard deviation below 10
    clubs = shop.sql("select count(*) from syn.guest where g_kind = 'club'")[0][0]
    assert abs(clubs - 1000) < 200
    paid = dict(shop.sql("select coalesce(v_paid, '-'), count(*) from syn.visit group by 1"))
    assert all(
        abs(paid[key] - n) < 600 for key, n in {"card": 3000, "cash": 3000, "-": 2000}.items()
    )
    first = shop.sql("select md5(string_agg(v::text, '|' order by v_id)) from syn.visit v")
    call(alice, f", method => '{method}', replace => true")
    assert spent(shop) == pytest.approx(8)  # found again, and the same model fitted
    assert shop.sql("select md5(string_agg(v::text, '|' order by v_id)) from syn.visit v") == first
    sizes = shop.sql("select value from dp.synthesis_report('syn') where part = 'size'")
    assert len(sizes) == 2


@pytest.mark.skipif(sys.version_info < (3, 11), reason="mbi needs Python 3.11")
@pytest.mark.parametrize("method", ["mst", "aim_pgm"])
def test_without_mbi_nothing_is_charged_and_it_is_said_what_to_install(
    shop: Any, method: str
) -> None:
    with shop.connect() as session:
        session.execute("create extension if not exists plpython3u")
        session.execute(HIDE)
        session.execute("set session authorization alice")
        with pytest.raises(psycopg.Error) as raised:
            call(session, f", method => '{method}'")
    assert "make extras" in str(raised.value.diag.message_hint)
    assert spent(shop) == 0
    assert shop.sql("select count(*) from dp.synthesis") == [(0,)]


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        (CALL.replace("{more}", ", method => 'magic'"), 'parameter "method" must be one of'),
        (CALL.replace("delta => 1e-6", "delta => 0").replace("{more}", ""), "Gaussian noise"),
        (CALL.replace('"visit": 4', '"visit": 0').replace("{more}", ""), "whole numbers from 1"),
        (
            CALL.replace("{more}", ", row_counts => '{\"guest\": 2000000000}'"),
            "from 0 to 100000000",
        ),
        (CALL.replace('"visit"', '"vist"').replace("{more}", ""), "names no relation"),
        (CALL.replace("epsilon => 8", "epsilon => -1").replace("{more}", ""), "at least 0.000001"),
        (CALL.replace("'guest', 'visit'", "'visit'").replace("{more}", ""), "guest"),
        (CALL.replace("'syn'", "'pg_catalog'").replace("{more}", ""), 'parameter "target"'),
        (CALL.replace(", d_max => '{\"visit\": 4}'{more}", ""), "any number of rows in"),
        (CALL.replace('"visit": 4', '"visit": 1e5000').replace("{more}", ""), "whole numbers"),
        ("begin; " + CALL.replace("{more}", ""), "in a transaction block or in a function"),
        (
            "begin read only; " + CALL.replace("{more}", ""),
            "in a transaction block or in a function",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_it_is_paid(shop: Any, statement: str, told: str) -> None:
    alice = shop.connect(user="alice")
    with pytest.raises(psycopg.Error) as raised:
        alice.execute(statement)
    assert told in str(raised.value)
    assert raised.value.sqlstate is not None
    assert spent(shop) == 0
    assert shop.sql("select count(*) from dp.synthesis") == [(0,)]


@pytest.mark.parametrize(
    "statement",
    [
        "begin; {call}",
        "select 1; {call}",
        "select pg_temp.inside()",
        "begin; do $$ begin {call}; end $$",
        "begin; call dp.write_synthesis(1)",
    ],
)
def test_where_nothing_can_be_committed_nothing_is_charged(shop: Any, statement: str) -> None:
    alice = shop.connect(user="alice")
    plain = CALL.replace("{more}", "")
    alice.execute(
        f"create function pg_temp.inside() returns void language plpgsql as $$ begin {plain}; end $$"
    )
    with pytest.raises(psycopg.Error, match="in a transaction block or in a function") as raised:
        alice.execute(statement.replace("{call}", plain))
    assert raised.value.diag.message_hint.startswith("End the block first")
    assert spent(shop) == 0
    alice.execute("rollback")
    alice.execute(f"do $$ begin {plain}; end $$")  # a block of code may commit
    assert shop.sql("select state from dp.syntheses") == [("done",)]


def test_a_budget_that_is_not_there_is_refused(shop: Any) -> None:
    alice = shop.connect(user="alice")
    with pytest.raises(psycopg.Error, match="budget"):
        alice.execute(CALL.replace("delta => 1e-6", "delta => 2e-5").replace("{more}", ""))
    assert spent(shop) == 0


def test_an_analyst_without_budget_gets_nothing(shop: Any) -> None:
    shop.sql("grant dp_analyst to bob")  # as other tests do
    shop.sql("create schema bobs authorization bob")
    shop.sql("grant select, references on public.land to bob")
    bob = shop.connect(user="bob")
    with pytest.raises(psycopg.Error) as raised:
        bob.execute(CALL.replace("'syn'", "'bobs'").replace("{more}", ""))
    assert "budget" in str(raised.value)
    assert shop.sql("select count(*) from dp.synthesis") == [(0,)]


def test_levels_are_written_as_values_of_their_types(shop: Any) -> None:
    for statement in (
        "alter table guest add g_old boolean not null default false, add g_day date not null default '2024-05-05', add g_rate numeric(4,2)",
        "update guest set g_old = g_id % 4 = 0, g_rate = 1.50, g_day = date '2024-05-05' + g_id % 2",
        "select dp.set_domain('guest', 'g_rate', array[1.50, 2.25], includes_null => true)",
        "select dp.set_domain('guest', 'g_day', array[date '2024-05-05', '2024-05-06'])",
    ):
        shop.sql(statement)
    alice = shop.connect(user="alice")
    alice.execute(
        "call dp.synthesize('syn', array['guest']::regclass[], epsilon => 20, delta => 1e-6)"
    )
    (found,) = shop.sql(
        "select count(*) filter (where g_old),"
        " count(*) filter (where g_rate = 1.5), count(*) filter (where g_day = '2024-05-06')"
        " from syn.guest"
    )
    for number, truth in zip(found, (1000, 4000, 2000), strict=True):
        assert abs(number - truth) < 150, found


def test_a_session_that_only_acts_as_a_role_copies_nothing(shop: Any) -> None:
    """What is written would run in the session of whoever is behind it."""
    shop.sql("grant alice to bob")
    try:
        bob = shop.connect(user="bob")
        bob.execute("set role alice")
        with pytest.raises(psycopg.Error, match="role that the session belongs to") as raised:
            call(bob)
        assert raised.value.sqlstate == "PD070"
        assert spent(shop) == 0
        alice = shop.connect(user="alice")
        job = alice.execute(
            "select dp.synthesize_query('syn', array['guest'::regclass::oid], '1', '1e-6', 'aim', null,"
            " null, '{}', 32, false, false)"
        ).fetchone()[0]
        with pytest.raises(psycopg.Error, match="role that the session belongs to"):
            bob.execute("call dp.write_synthesis(%s)", (job,))
        alice.execute("call dp.write_synthesis(%s)", (job,))
        assert shop.sql("select state from dp.synthesis") == [("done",)]
    finally:
        shop.sql("revoke alice from bob")  # roles are the whole cluster's


def test_a_little_budget_is_warned_of(shop: Any) -> None:
    alice = shop.connect(user="alice")
    told: list[str] = []
    alice.add_notice_handler(lambda d: told.append(f"{d.message_primary} {d.message_detail}"))
    alice.execute(CALL.replace("epsilon => 8", "epsilon => 0.01").replace("{more}", ""))
    assert any("little budget for relation visit" in text for text in told)
    assert shop.sql("select state from dp.syntheses") == [("done",)]
