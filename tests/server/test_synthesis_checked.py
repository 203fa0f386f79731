"""What a copy cannot satisfy is told before it is paid; what a cancel and a crash cost."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.server.copying import run, spent
from tests.server.in_service import after_the_charge, in_service, value_in_service

pytestmark = pytest.mark.server

MADE = r"""
create domain public.digits as text check (value ~ '^[0-9]+$');
create table public.place (p_id int primary key);
create table public.person (u_id int primary key, u_kind text not null, u_sort text not null,
  u_place int not null references public.place, u_born int not null, u_height numeric(4,1), u_free text, u_many int);
insert into public.place select i from generate_series(1, 4) i;
insert into public.person select i, 'a', 'x', 1 + i % 3, 1950, 170.5, null, i from generate_series(1, 200) i;
select dp.declare_public('place');
select dp.protect('person', privacy_unit => 'u_id');
select dp.set_domain('person', 'u_kind', array['a', 'b']);
select dp.set_domain('person', 'u_sort', array['x', 'y']);
select dp.set_domain('person', 'u_born', 1900, 1999);
select dp.set_domain('person', 'u_height', 100, 220);
select dp.set_root_cap('person', 1000, 1e-4);
select dp.grant_budget('alice', epsilon => 100, delta => 1e-5);
grant select, references on public.place to alice;
create schema syn authorization alice
"""
CALL = "call dp.synthesize('syn', array['person']::regclass[], 8, 1e-6, placeholders => true)"
MEASURE = """select dp.synthesize_query('syn', array['person'::regclass::oid], '8', '1e-6', 'aim',
  null, null, '{}', 32, true, false)"""


@pytest.fixture
def people(database: Any) -> Any:
    run(database, MADE)
    return database


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("add constraint c check (u_kind = 'c') not valid", '"c"'),
        ("add constraint c check (u_kind || u_sort in ('ac', 'bc')) not valid", '"c"'),
        ("add constraint c check (u_born > 2000) not valid", '"c"'),
        ("add constraint c check (u_height is not null and u_height < 50) not valid", '"c"'),
        ("add constraint c check (u_free is not null) not valid", '"c"'),
        ("add constraint c check (u_id < 0) not valid", '"c"'),
        ("add u_code digits not null default '1'; alter u_code drop default", '"digits_check" of its domain'),
        ("add constraint c check (case when u_kind = 'b' then 1 / (length(u_sort) - 1) else 0 end = 2) not valid", None),
        # links, generated columns and defaults; keys begin where a constraint says, and the first row has the first
        ("add constraint c check (u_place > 4) not valid", '"c"'),
        ("add u_late int generated always as (u_born + 1000) stored; add constraint c check (u_late < 2900) not valid", '"c"'),
        ("add u_code int not null default 3; add constraint c check (u_code = 4) not valid", '"c"'),
        ("add constraint c check (u_id % 2 = 0) not valid", '"c"'),
        (
            "add constraint c check (u_place = 4 and u_kind = 'a') not valid; add u_up int references place; add constraint d check (u_up < 0 and u_kind = 'a') not valid;"
            " add u_late int generated always as (u_born + 1000) stored; add constraint e check (u_late < 2950) not valid;"
            " add u_some int not null default (random() * 5)::int; add constraint f check (u_some = 9) not valid;"
            " add u_code int not null default 3; add constraint g check (u_code + length(u_kind) = 4) not valid;"
            " add constraint h check (u_id > 1000) not valid; add constraint i check (u_id % 2 = 1) not valid",
            None,
        ),
        ("add constraint c check (u_kind = 'a' or u_sort = 'z')", None),
        ("add constraint c check (u_kind = 'b' and u_sort = 'y') not valid", None),
        ("add constraint c check (u_born = 1950)", None),
        ("add constraint c check (u_height <> 1)", None),
    ],
)  # fmt: skip
def test_a_constraint_that_nothing_satisfies_is_named_before_it_is_paid(
    people: Any, change: str, named: str | None
) -> None:
    for part in change.split("; "):
        people.sql(f"alter table person {part}")
    with people.connect("alice") as alice:
        if named is None:
            alice.execute(MEASURE)
            assert spent(people) == pytest.approx(8)
            return
        with pytest.raises(psycopg.Error) as raised:
            alice.execute(CALL)
    assert raised.value.sqlstate == "PD010"
    assert named in str(raised.value.diag.message_primary)
    assert "public.person" in str(raised.value.diag.message_primary)
    assert spent(people) == 0
    assert people.sql("select count(*) from dp.synthesis") == [(0,)]


@pytest.mark.parametrize(
    "expression",
    [
        # would be read with the rights of whoever tries it
        "query_to_xml('select u_id from public.person', true, true, '')::text = u_kind",
        "own_code(u_kind)",
        "current_setting('search_path') = u_kind",
    ],
)
def test_what_calls_more_than_plain_functions_is_not_tried(people: Any, expression: str) -> None:
    people.sql(
        "create function own_code(text) returns boolean immutable language plpgsql as"
        " $$ begin raise 'called'; end $$"
    )
    people.sql(f"alter table person add constraint c check ({expression}) not valid")
    with people.connect("alice") as alice:
        alice.execute(MEASURE)
    assert spent(people) == pytest.approx(8)


def test_what_is_not_copied_is_said_before_it_is_paid(people: Any) -> None:
    people.sql(
        "create extension if not exists btree_gist;"
        "create function f() returns trigger language plpgsql as 'begin return new; end';"
        "create trigger loud before insert on person for each row execute function f();"
        "alter table person add constraint apart exclude using gist (u_born with <>);"
    )
    told: list[str] = []
    with people.connect("alice") as alice:
        alice.add_notice_handler(lambda n: told.append(str(n.message_primary)))
        alice.execute("set dp.epsilon = 1")
        people.sql("select dp.revoke_budget('alice')")
        with pytest.raises(psycopg.Error):
            alice.execute(CALL)
    assert "trigger loud of public.person is left out: it is code of the original" in told
    assert "constraint apart of public.person is left out: it excludes rows by operators" in told


def test_a_cancel_while_it_is_measured_says_that_it_was_charged(people: Any) -> None:
    with people.connect() as session:
        session.execute("select * from dp.explain('select dp_count(*) from person')")  # imports
        session.execute(
            in_service(
                "import os, signal\n"
                "import dpsql.engine.synthesis_measure as m\n"
                "def run(self):\n"
                "    os.kill(os.getpid(), signal.SIGINT)\n"
                "    self.services.database.execute('select pg_sleep(60)')\n"
                "m.Measuring.run = run\n"
            )
        )
        session.execute("set session authorization alice")
        told: list[Any] = []
        session.add_notice_handler(lambda n: told.append((n.message_primary, n.message_hint)))
        for times in (1, 2):
            with pytest.raises(psycopg.errors.QueryCanceled):
                session.execute(MEASURE)
            assert spent(people) == pytest.approx(8 * times)
        said = [hint for message, hint in told if message.startswith("the measurement did not end")]
        assert said == ["The same call measures again and is charged again."] * 2


def test_a_cancel_after_it_was_measured_costs_nothing_more(people: Any) -> None:
    told: list[Any] = []
    with people.connect("alice") as alice:
        alice.add_notice_handler(lambda n: told.append((n.message_primary, n.message_hint)))
        alice.execute(CALL)
    hints = [hint for message, hint in told if message.endswith("is measured and paid for")]
    assert len(hints) == 1
    assert "CALL dp.write_synthesis(1); goes on and pays nothing" in hints[0]


@pytest.mark.parametrize("begun", [False, True])
def test_rows_that_are_inserted_into_a_public_table_meanwhile_are_not_referred_to(
    people: Any, begun: bool
) -> None:
    with people.connect("alice") as alice:
        ((job,),) = alice.execute(MEASURE).fetchall()
        if begun:
            alice.execute("select dp.synthesis_step(%s)", (job,))
    people.sql("insert into place values (0), (5); delete from place where p_id > 5")
    with people.connect("alice") as alice:
        alice.execute("call dp.write_synthesis(%s)", (job,))
    assert people.sql("select min(u_place) >= 1 and max(u_place) <= 4 from syn.person") == [(True,)]


@pytest.mark.parametrize(
    "change", ["update place set p_id = 9 where p_id = 2", "delete from place where p_id = 2"]
)
@pytest.mark.parametrize("begun", [False, True])
def test_a_row_of_a_public_table_that_is_gone_is_named_and_can_be_brought_back(
    people: Any, change: str, begun: bool
) -> None:
    with people.connect("alice") as alice:
        ((job,),) = alice.execute(MEASURE).fetchall()
        if begun:
            alice.execute("select dp.synthesis_step(%s)", (job,))
    people.sql("delete from person")
    people.sql(change)
    with people.connect("alice") as alice, pytest.raises(psycopg.Error) as raised:
        alice.execute("call dp.write_synthesis(%s)", (job,))
    assert raised.value.diag.message_primary == (
        "rows of the public table public.place that the synthesis refers to are gone"
    )
    assert raised.value.diag.message_detail == "One of 1: p_id = 2."
    people.sql("insert into place values (2)")
    with people.connect("alice") as alice:
        alice.execute("call dp.write_synthesis(%s)", (job,))
    assert spent(people) == pytest.approx(8)
    assert people.sql("select count(*) > 100 from syn.person where u_place <> 4") == [(True,)]


@pytest.mark.parametrize(
    "change",
    ["insert into place values (5)", "delete from place where p_id = 4", "update place set p_id = 9 where p_id = 4"],
)  # fmt: skip
def test_what_was_planned_is_measured_whatever_becomes_of_a_public_table(
    people: Any, change: str
) -> None:
    """Somebody writes the public table after the charge and before the snapshot."""
    with people.connect() as session:
        session.execute(after_the_charge(people.conninfo(), change))
        session.execute("set session authorization alice")
        ((job,),) = session.execute(MEASURE).fetchall()
        session.execute("reset session authorization")
        assert session.execute("select " + value_in_service('return GD["after"]')).fetchone() == (
            "[False]",
        )
    assert spent(people) == pytest.approx(8)
    people.sql("insert into place values (4) on conflict do nothing")
    with people.connect("alice") as alice:
        alice.execute("call dp.write_synthesis(%s)", (job,))
    assert people.sql("select count(*) > 100 and max(u_place) <= 4 from syn.person") == [(True,)]


def test_a_domain_inside_a_constraint_of_a_domain_is_not_tried(people: Any) -> None:
    people.sql("create domain public.inside as int check (value > 0)")
    people.sql("create domain public.outside as int check ((value::public.inside)::int > 0)")
    people.sql("create function public.own(int) returns boolean language sql as 'select true'")
    people.sql("alter domain public.inside add constraint own check (public.own(value))")
    people.sql("alter table person add u_code outside")
    people.sql("alter function public.own(int) owner to alice")
    people.sql("alter domain public.inside owner to alice")
    people.sql("alter domain public.outside owner to alice")
    with people.connect("alice") as alice:
        alice.execute(MEASURE)
    assert spent(people) == pytest.approx(8)


def test_a_copy_of_which_nothing_would_be_learnt_is_refused_with_what_helps(people: Any) -> None:
    people.sql("create table lone (l_id int primary key, l_name text, l_age int)")
    people.sql("insert into lone select i, 'x', i from generate_series(1, 50) i")
    people.sql("select dp.protect('lone'); select dp.set_root_cap('lone', 100, 1e-4)")
    call = MEASURE.replace("'person'", "'lone'")
    with people.connect("alice") as alice:
        with pytest.raises(psycopg.Error) as raised:
            alice.execute(call.replace("true, false", "false, false"))
        assert raised.value.diag.message_primary is not None
        assert raised.value.diag.message_primary.startswith("nothing public is known of any column")
        assert "l_name, l_age of public.lone" in str(raised.value.diag.message_detail)
        assert spent(people) == 0
        told: dict[str, tuple[str, str]] = {}
        alice.add_notice_handler(
            lambda d: told.update({d.message_primary: (d.message_detail, d.message_hint)})
        )
        alice.execute(call)  # values are to be made up
        assert spent(people) == pytest.approx(8)
        ((detail, more),) = [d for text, d in told.items() if text.startswith("2 columns are NULL")]
        assert detail == "They are l_name, l_age of public.lone."
        assert "'l_age', 0, 100);" in more
        hint = str(raised.value.diag.message_hint)
        people.sql(hint[hint.index("SELECT dp.set_domain") :].partition(";")[0])
        alice.execute(call.replace("true, false", "false, false"))
        assert spent(people) == pytest.approx(16)


def test_what_noise_drowns_is_told_and_kept(people: Any) -> None:
    run(
        people,
        """create table far (f_id int primary key);
        insert into far select generate_series(1, 300);
        create table goer (o_far int not null references far, o_on boolean not null);
        insert into goer select 1 + i % 300, true from generate_series(1, 900) i;
        grant select, references on far to alice;
        select dp.declare_public('far');
        select dp.protect('goer')""",
    )
    told: list[str] = []
    with people.connect("alice") as alice:
        alice.add_notice_handler(lambda d: told.append(str(d.message_primary)))
        alice.execute(MEASURE.replace("'person'", "'goer'").replace("'8'", "'0.01'"))
        notes = alice.execute("select notes from dp.syntheses").fetchone()[0]
    # 300 parents are public, and so is the noise: no draw decides that it is too much
    text = "how many children parents have by goer_o_far_fkey is not learnt: noise would drown it"
    assert text in told
    assert text in notes
