"""Synthetic tables of a plan and of generated rows: every constraint of the original holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import psycopg
import pytest
from synthesising import read_plan, rows, store, write, writer
from test_dump_restore import dump_and_restore

from dpsql.synthesis.generated import Generated
from dpsql.synthesis.schema import Attribute

CHAIN = """
create type public.mood as enum ('sad', 'glad');
create table public.region (r_id int primary key, r_name varchar(12) not null unique);
insert into public.region select i, 'region ' || i from generate_series(1, 5) i;
create table public.person (p_id bigint generated always as identity primary key,
  p_region int not null references public.region, p_mood public.mood, p_age int check (p_age between 0 and 120),
  p_pay numeric(8,2) not null default 0, p_born date, p_double int generated always as (p_age * 2) stored,
  p_code uuid not null unique, p_email varchar(40) unique, p_note text default 'none',
  p_boss bigint references public.person, check (p_age > 17 or p_pay = 0));
create index person_mood on public.person (p_mood, p_age) where p_age > 3;
comment on column public.person.p_age is 'in years';
create table public.account (a_person bigint not null references public.person, a_number int not null,
  a_kind text not null, primary key (a_person, a_number));
create table public.booking (b_id serial primary key, b_person bigint not null, b_account int not null,
  b_when timestamptz not null, b_by bigint references public.person on delete set null on update cascade deferrable initially deferred, b_ratio float8,
  foreign key (b_person, b_account) references public.account);
create table public.member (m_person bigint references public.person, m_account_person bigint not null,
  m_account int not null, m_role text not null,
  primary key (m_person, m_account_person, m_account),
  foreign key (m_account_person, m_account) references public.account);
grant select on all tables in schema public to owner1;
grant references on public.region to owner1;
grant create on database {database} to owner1;
grant dp_owner to owner1;
"""
NAMES = ["public.region", "public.person", "public.account", "public.booking", "public.member"]
ATTRIBUTES = {
    "public.person": [
        "p_mood",
        Attribute("p_age", "bin", ("0", "18", "40", "121")),
        Attribute("p_pay", "bin", ("0", "0.01", "1000", "99999.99")),
        Attribute("p_born", "bin", ("1950-01-01", "1980-01-01", "2000-01-01")),
    ],
    "public.account": ["a_kind"],
    "public.booking": [
        Attribute("b_when", "bin", ("2024-01-01 00:00:00+00", "2024-06-01 00:00:00+00")),
        Attribute("b_ratio", "bin", ("0", "0.5", "1")),
    ],
    "public.member": ["m_role"],
}
LEVELS = {
    1: [["sad", "glad", None], ["1", "2", "3", None], ["1", "2", "3"], ["0", "1", "2", "3", None]],
    2: [["giro", "loan"]],
    3: [["1"], ["1", "2", None]],
    4: [["owner", "user"]],
}


def chain(people: int = 300, accounts: int = 400, bookings: int = 900, members: int = 700):
    return [
        None,
        rows(people, LEVELS[1], [people, 5], 1, [True, False]),
        rows(accounts, LEVELS[2], [people], 2),
        rows(bookings, LEVELS[3], [people, accounts], 3, [True, False]),
        rows(members, LEVELS[4], [accounts, people], 4),
    ]


@pytest.fixture
def made(database: Any) -> Any:
    database.sql(CHAIN.format(database=database.name))
    return database


def plan_of_chain(session: Any) -> Any:
    return read_plan(session, NAMES, ATTRIBUTES, public=["public.region"])


def test_a_chain_with_links_is_written_with_all_constraints(made: Any) -> None:
    admin = made.connect()
    job = store(made, "owner1", "syn", plan_of_chain(admin), chain())
    session = writer(made, "owner1")
    write(session, job)
    count = dict(
        admin.execute(
            "select relname::text, reltuples::int from pg_class where relnamespace = 'syn'::regnamespace and relkind = 'r'"
        ).fetchall()
    )
    assert count == {"person": 300, "account": 400, "booking": 900, "member": 700}
    constraints = (
        "select conname::text, contype::text, convalidated, pg_get_constraintdef(oid) from pg_constraint"
        " where connamespace = %s::regnamespace and conrelid <> 'public.region'::regclass order by 1"
    )
    admin.execute("set search_path = syn")
    copied = admin.execute(constraints, ("syn",)).fetchall()
    admin.execute("set search_path = public")
    original = admin.execute(constraints, ("public",)).fetchall()
    assert [(*row[:3], row[3].replace("public.region", "region")) for row in copied] == original
    assert all(row[2] for row in copied)
    one = admin.execute(
        "select min(p_id), max(p_id), bool_and(p_double is not distinct from p_age * 2) from syn.person"
    ).fetchone()
    assert one == (1, 300, True)
    assert admin.execute(
        "select count(*) from syn.person where p_email !~ '^person [0-9]+$' or p_note <> 'none'"
    ).fetchone() == (0,)
    assert (
        admin.execute("select obj_description('syn.person'::regclass)")
        .fetchone()[0]
        .startswith("synthetic, epsilon 1")
    )
    assert admin.execute("select col_description('syn.person'::regclass, 4)").fetchone() == (
        "in years",
    )
    assert admin.execute("select count(*) from pg_indexes where schemaname = 'syn'").fetchone() == (
        7,
    )
    # own sequences go on after the rows
    assert admin.execute(
        "insert into syn.person (p_region, p_code) values (1, gen_random_uuid()) returning p_id"
    ).fetchone() == (301,)
    assert admin.execute(
        "select nextval(pg_get_serial_sequence('syn.booking', 'b_id'))"
    ).fetchone() == (901,)
    # made within the parent
    assert admin.execute(
        "select count(*) from (select from syn.account group by a_person having max(a_number) <> count(*)) x"
    ).fetchone() == (0,)
    state = session.execute("select state, rows_written, target from dp.syntheses").fetchall()
    assert state == [("done", 2300, "syn")]


def contents(session: Any, target: str) -> dict[str, list[str]]:
    """Return every row of every table of a schema, as texts."""
    names = session.execute(
        "select format('%%I.%%I', schemaname, tablename) from pg_tables where schemaname = %s order by 1",
        (target,),
    ).fetchall()
    return {
        name: [r[0] for r in session.execute(f"select t::text from {name} t order by 1")]
        for (name,) in names
    }


@pytest.mark.parametrize("after", [2, 7, 30])
def test_what_is_resumed_after_a_crash_is_the_same(made: Any, after: int) -> None:
    admin = made.connect()
    plan = plan_of_chain(admin)
    generated = chain(people=12_000, accounts=6000, bookings=60_000, members=9000)
    whole = store(made, "owner1", "whole", plan, generated)
    steps = write(writer(made, "owner1"), whole)
    assert steps > after
    expected = contents(admin, "whole")
    job = store(made, "owner1", "syn", plan, generated)
    broken = writer(made, "owner1")
    for _ in range(after):
        assert broken.execute("select dp.synthesis_step(%s)", (job,)).fetchone() == (True,)
    broken.execute("begin")
    assert broken.execute("select dp.synthesis_step(%s)", (job,)).fetchone() == (True,)
    pid = broken.info.backend_pid
    admin.execute("select pg_terminate_backend(%s, 10000)", (pid,))
    with pytest.raises(psycopg.OperationalError):
        broken.execute("commit")
    assert steps - after == write(writer(made, "owner1"), job)
    found = contents(admin, "syn")
    assert {k.partition(".")[2]: v for k, v in found.items()} == {
        k.partition(".")[2]: v for k, v in expected.items()
    }


def test_rows_are_generated_once_a_session(made: Any) -> None:
    job = store(made, "owner1", "syn", plan_of_chain(made.connect()), chain())
    session = writer(made, "owner1")
    write(session, job)
    session.execute("reset session authorization")
    session.execute(
        "do language plpython3u $$ if GD['generated'] != 1: raise Exception(GD['generated']) $$"
    )


def test_tables_of_one_row_and_of_none(made: Any) -> None:
    admin = made.connect()
    plan = plan_of_chain(admin)
    for n, sizes in enumerate([(1, 1, 1, 1), (1, 0, 5, 5), (0, 4, 4, 4)]):
        job = store(made, "owner1", f"syn{n}", plan, chain(*sizes))
        write(writer(made, "owner1"), job)
    counts = [
        {name: len(found) for name, found in contents(admin, f"syn{n}").items()} for n in range(3)
    ]
    assert list(counts[0].values()) == [1, 1, 1, 1]
    assert counts[1] == {"syn1.account": 0, "syn1.booking": 0, "syn1.member": 0, "syn1.person": 1}
    assert set(counts[2].values()) == {0}
    notes = made.sql("select notes from dp.synthesis where target = 'syn1'")[0][0]
    assert any("5 rows of booking are left out" in note for note in notes)


def test_pairs_that_repeat_are_linked_anew_or_left_out(database: Any) -> None:
    database.sql(
        "create table a (id int primary key); create table b (id int primary key, t text unique);"
        "create table ab (a_id int references a, b_id int references b, w int, primary key (a_id, b_id));"
        "grant select on all tables in schema public to owner1; grant dp_owner to owner1;"
        f"grant create on database {database.name} to owner1"
    )
    admin = database.connect()
    plan = read_plan(admin, ["a", "b", "ab"], {"b": ["t"], "ab": ["w"]})
    levels = [str(i) for i in range(40)]
    links = rows(500, [["1", "2"]], [20, 30], 5)
    generated = [rows(20, []), rows(30, [levels], seed=3), links]
    write(writer(database, "owner1"), store(database, "owner1", "syn", plan, generated))
    assert admin.execute("select count(*), count(distinct t) from syn.b").fetchone() == (30, 30)
    assert admin.execute("select count(*) from syn.ab").fetchone() == (500,)
    # 30 rows of 10 levels; 700 pairs of 600
    generated = [rows(20, []), rows(30, [levels[:10]], seed=3), rows(700, [["1"]], [20, 30], 6)]
    write(writer(database, "owner1"), store(database, "owner1", "full", plan, generated))
    assert admin.execute('select count(*), count(distinct t) from "full".b').fetchone() == (10, 10)
    assert admin.execute('select count(*) from "full".ab').fetchone() == (200,)
    notes = database.sql("select notes from dp.synthesis where target = 'full'")[0][0]
    assert any("20 rows of b are left out" in note for note in notes)
    assert any("500 rows of ab are left out" in note for note in notes)


def test_keys_that_share_a_column_agree(database: Any) -> None:
    database.sql(
        "create table tenant (id int primary key);"
        "create table project (tenant int not null references tenant, id int not null, above int, primary key (tenant, id),"
        "  foreign key (tenant, above) references project);"
        "create table task (tenant int not null, project int not null, of_tenant int references tenant, id uuid primary key,"
        "  foreign key (tenant, project) references project, foreign key (tenant) references tenant);"
        "grant select on all tables in schema public to owner1; grant dp_owner to owner1;"
        f"grant create on database {database.name} to owner1"
    )
    admin = database.connect()
    plan = read_plan(admin, ["tenant", "project", "task"], {})
    task = plan.tables[2]
    parents = [
        {"tenant": 12, "project": 80}[plan.tables[r.parent].table.name] for r in task.references
    ]
    generated = [
        rows(12, []),
        rows(80, [], [80, 12], 2, [True, False]),
        rows(500, [], parents, 3, [r.nullable for r in task.references]),
    ]
    write(writer(database, "owner1"), store(database, "owner1", "syn", plan, generated))
    assert admin.execute("select count(*) > 400 and count(*) <= 500 from syn.task").fetchone() == (
        True,
    )
    assert admin.execute("select count(*), count(above) > 10 from syn.project").fetchone() == (
        80,
        True,
    )


def test_rows_that_a_check_refuses_get_the_attributes_of_others(database: Any) -> None:
    database.sql(
        "create table t (id int primary key, low int not null, high int not null, constraint ordered check (low < high),"
        " even int generated always as (low * 2) stored, constraint doubled check (even < 12));"
        "grant select on t to owner1; grant dp_owner to owner1;"
        f"grant create on database {database.name} to owner1"
    )
    admin = database.connect()
    plan = read_plan(admin, ["t"], {"t": ["low", "high"]})
    levels = [[str(i) for i in range(10)]] * 2
    for target in ("syn", "again"):
        write(
            writer(database, "owner1"),
            store(database, "owner1", target, plan, [rows(3000, levels)]),
        )
    assert admin.execute("select count(*) from syn.t where low < high and low < 6").fetchone() == (
        3000,
    )
    assert contents(admin, "syn")["syn.t"] == contents(admin, "again")["again.t"]
    # rows that satisfied it are as they were drawn
    drawn = rows(3000, levels).codes
    good = [n for n, (low, high) in enumerate(drawn) if low < high and low < 6]
    kept = admin.execute("select id, low, high from syn.t order by id").fetchall()
    assert [kept[n] for n in good] == [(n + 1, *map(int, drawn[n])) for n in good]
    levels = [["5"], ["3", "4"]]
    job = store(database, "owner1", "none", plan, [rows(20, levels)])
    with pytest.raises(psycopg.Error, match='satisfies the constraint "ordered"') as raised:
        write(writer(database, "owner1"), job)
    assert raised.value.sqlstate == "PD010"


def test_a_target_with_relations_is_refused_and_only_synthetic_ones_are_replaced(made: Any) -> None:
    admin = made.connect()
    plan = plan_of_chain(admin)
    session = writer(made, "owner1")
    session.execute("create schema syn; create table syn.mine (a int)")
    job = store(made, "owner1", "syn", plan, chain(), replace=True)
    with pytest.raises(psycopg.Error, match="has relations already") as raised:
        write(session, job)
    assert "syn.mine" in str(raised.value.diag.message_detail)
    session.execute("drop table syn.mine")
    write(session, job)
    first = store(made, "owner1", "syn", plan, chain())
    with pytest.raises(psycopg.Error, match="replace => true"):
        write(session, first)
    second = store(made, "owner1", "syn", plan, chain(people=50), replace=True)
    write(session, second)
    assert admin.execute("select count(*) from syn.person").fetchone() == (50,)
    # the schema was there before
    session.execute("select dp.drop_synthesis('syn')")
    assert admin.execute(
        "select count(*) from pg_class where relnamespace = 'syn'::regnamespace"
    ).fetchone() == (0,)
    assert made.sql("select count(*) from dp.synthesis_table") == [(0,)]
    with pytest.raises(psycopg.Error, match="there is no synthesis syn of yours"):
        session.execute("select dp.drop_synthesis('syn')")
    third = store(made, "owner1", "other", plan, chain())
    write(session, third)
    session.execute("select dp.drop_synthesis('other')")
    assert admin.execute("select to_regnamespace('other')").fetchone() == (None,)


def test_only_the_role_that_measured_goes_on(made: Any) -> None:
    made.sql("grant dp_analyst to mallory")
    plan = plan_of_chain(made.connect())
    job = store(made, "owner1", "syn", plan, chain())
    mallory = writer(made, "mallory")
    with pytest.raises(psycopg.Error, match=f"there is no synthesis {job} of yours"):
        mallory.execute("select dp.synthesis_step(%s)", (job,))
    assert mallory.execute("select * from dp.syntheses").fetchall() == []
    for call in ("dp.synthesis_wrote(%s, 1, 5, 0, 5)", "dp.synthesis_moved(%s, 'done', 1, '{{}}')"):
        with pytest.raises(psycopg.Error, match="of yours"):
            mallory.execute(f"select {call.format()}", (job,))
    with pytest.raises(psycopg.Error, match="permission denied"):
        mallory.execute("select payload from dp.synthesis")


def test_a_definer_function_cannot_write_in_another_name(made: Any) -> None:
    made.sql("grant dp_owner to mallory")
    job = store(made, "owner1", "syn", plan_of_chain(made.connect()), chain())
    made.sql("create schema trap authorization mallory; grant usage on schema trap to public")
    made.sql(
        "create function trap.go(job bigint) returns boolean language sql security definer as 'select dp.synthesis_step(job)'",
        user="mallory",
    )
    session = writer(made, "owner1")
    with pytest.raises(psycopg.Error, match="must be the role owner1"):
        session.execute("select trap.go(%s)", (job,))


def test_code_of_others_does_not_run_with_the_callers_rights(database: Any) -> None:
    database.sql(
        "grant dp_owner to owner1; create schema m authorization mallory; grant usage on schema m to public;"
        f"grant create on database {database.name} to owner1"
    )
    database.sql(
        "create function m.peep(int) returns boolean language plpgsql immutable as $$ begin"
        " if current_user = 'owner1' then raise exception 'ran as owner1'; end if; return true; end $$;"
        "create function m.one() returns int language plpgsql as $$ begin"
        " if current_user = 'owner1' then raise exception 'ran as owner1'; end if; return 1; end $$;"
        "create table m.t (id int primary key, a int check (m.peep(a)), b int default m.one());"
        "create index on m.t (m.peep(a)); create index on m.t (a) where m.peep(a); grant select on m.t to public;"
        "create domain m.checked as int check (m.peep(value)); create table m.u (id int primary key, a m.checked)",
        user="mallory",
    )
    admin = database.connect()
    plan = read_plan(admin, ["m.t"], {"m.t": ["a"]})
    write(
        writer(database, "owner1"), store(database, "owner1", "syn", plan, [rows(50, [["1", "2"]])])
    )
    assert admin.execute("select count(*), count(b) from syn.t").fetchone() == (50, 0)
    notes = database.sql("select notes from dp.synthesis")[0][0]
    assert len(notes) == 4
    plan = read_plan(admin, ["m.u"], {"m.u": ["a"]})
    job = store(database, "owner1", "syn2", plan, [rows(50, [["1", "2"]])])
    with pytest.raises(psycopg.Error, match="runs code of another role"):
        write(writer(database, "owner1"), job)


def test_a_caller_who_cannot_create_is_refused(made: Any) -> None:
    made.sql("grant dp_analyst to alice; grant select on all tables in schema public to alice")
    job = store(made, "alice", "syn", plan_of_chain(made.connect()), chain())
    with pytest.raises(psycopg.Error, match="permission denied to create the schema syn") as raised:
        write(writer(made, "alice"), job)
    assert raised.value.sqlstate == "PD070"
    assert "GRANT CREATE ON DATABASE" in (raised.value.diag.message_hint or "")
    assert " TO alice, or" in (raised.value.diag.message_hint or "")
    made.sql("revoke select on public.region from alice")
    made.sql("create schema syn authorization alice")
    with pytest.raises(psycopg.Error, match=r"permission denied for table public\.region"):
        write(writer(made, "alice"), job)


def test_keys_of_many_types_are_made_up_and_followed(database: Any) -> None:
    types = [
        "smallint",
        "bigint",
        "numeric(6,2)",
        "text",
        "varchar(4)",
        "char(5)",
        "uuid",
        "bytea",
        "date",
        "timestamp",
        "timestamptz",
        "float8",
        "short",
    ]
    database.sql(
        "create domain short as varchar(6) check (length(value) < 6); grant dp_owner to owner1;"
        f"grant create on database {database.name} to owner1"
    )
    names = []
    for n, type_name in enumerate(types):
        database.sql(
            f"create table k{n} (id {type_name} primary key); create table c{n} (id int primary key, k {type_name} references k{n})"
        )
        names += [f"k{n}", f"c{n}"]
    database.sql("grant select on all tables in schema public to owner1")
    admin = database.connect()
    plan = read_plan(admin, names, {})
    generated: list[Generated | None] = []
    for _ in types:
        generated += [rows(300, []), rows(200, [], [300], 3, [True])]
    write(writer(database, "owner1"), store(database, "owner1", "syn", plan, generated))
    for n in range(len(types)):
        assert admin.execute(
            f"select count(*), count(k) between 100 and 199 from syn.c{n}"
        ).fetchone() == (200, True)
        assert (
            admin.execute(
                f"select count(*) from syn.c{n} join syn.k{n} on k = k{n}.id where k is not null"
            ).fetchone()[0]
            > 100
        )


def test_a_type_without_made_up_keys_is_refused(database: Any) -> None:
    database.sql(
        "create table t (a boolean primary key); grant select on t to owner1; grant dp_owner to owner1;"
        f"grant create on database {database.name} to owner1"
    )
    plan = read_plan(database.connect(), ["t"], {})
    job = store(database, "owner1", "syn", plan, [rows(1, [])])
    with pytest.raises(psycopg.Error, match=r"no keys can be made up for public\.t\.a"):
        write(writer(database, "owner1"), job)


def test_values_lie_in_their_bins(database: Any) -> None:
    columns = {
        "i": ("int", ("-5", "0", "10")),
        "n": ("numeric(8,3)", ("0", "0.5", "1.001")),
        "m": ("numeric", ("0", "1", "3")),
        "f": ("float8", ("0", "1e-3", "1")),
        "r": ("real", ("0", "1", "2")),
        "d": ("date", ("1999-12-01", "2000-01-15", "2001-01-01")),
        "s": ("timestamp", ("1999-12-01 00:00:00", "2000-01-15 12:00:00.5", "2001-01-01 00:00:00")),
        "z": (
            "timestamptz",
            ("1999-12-01 00:00:00+00", "2000-01-15 00:00:00+00", "2001-01-01 00:00:00+00"),
        ),
        "t": ("time", ("00:00:00", "12:00:00", "23:59:59")),
    }
    database.sql(
        f"create table t (id int primary key, {', '.join(f'{c} {kind}' for c, (kind, _) in columns.items())});"
        "grant select on t to owner1; grant dp_owner to owner1;"
        f"grant create on database {database.name} to owner1; set timezone = 'Asia/Tokyo'"
    )
    admin = database.connect()
    plan = read_plan(
        admin, ["t"], {"t": [Attribute(c, "bin", edges) for c, (_, edges) in columns.items()]}
    )
    levels = ["0", "1", "2", "3", None]
    given = rows(5000, [levels] * len(columns), seed=8)
    write(writer(database, "owner1"), store(database, "owner1", "syn", plan, [given]))
    for c, (name, (kind, edges)) in enumerate(columns.items()):
        places = (
            f"case when {name} is null then 'null' when {name} = '{edges[2]}'::{kind} then '3' when {name} < '{edges[0]}' or {name} > '{edges[2]}' then 'out'"
            f" when {name} >= '{edges[1]}'::{kind} then '2' else '1' end"
        )
        found = admin.execute(
            f"select {places}, {name} = '{edges[0]}'::{kind} from syn.t order by id"
        ).fetchall()
        for code, (place, lowest) in zip(given.codes[:, c], found, strict=True):
            level = levels[code]
            assert lowest if level == "0" else place == (level or "null"), (name, level, place)
        distinct = admin.execute(f"select count(distinct {name}) from syn.t").fetchone()[0]
        assert distinct > (10 if name == "i" else 50)


def test_the_listing_of_a_public_table_is_in_the_order_of_its_key(made: Any) -> None:
    job = store(
        made,
        "owner1",
        "syn",
        plan_of_chain(made.connect()),
        [
            None,
            Generated(
                5,
                np.zeros((5, 4), int),
                tuple(map(tuple, LEVELS[1])),
                (np.full(5, -1), np.array([4, 3, 2, 1, 0])),
            ),
            *chain(5, 3, 3, 3)[2:],
        ],
    )
    write(writer(made, "owner1"), job)
    assert made.sql("select p_region from syn.person order by p_id") == [
        (5,),
        (4,),
        (3,),
        (2,),
        (1,),
    ]


def test_a_procedure_writes_all_and_goes_on_after_a_cancel(made: Any) -> None:
    plan = plan_of_chain(made.connect())
    job = store(made, "owner1", "syn", plan, chain(people=20_000, bookings=200_000))
    session = writer(made, "owner1")
    cancelled = 0
    for milliseconds in (50 * 1.5**n for n in range(40)):
        session.execute(f"set statement_timeout = {int(milliseconds)}")
        try:
            session.execute("call dp.write_synthesis(%s)", (job,))
            break
        except psycopg.errors.QueryCanceled:
            cancelled += 1
    assert cancelled > 0
    found = made.sql("select state, rows, rows_written from dp.syntheses")
    assert found == [("done", 221_100, 221_100)]
    assert made.sql("select count(*), count(distinct b_id) from syn.booking") == [
        (200_000, 200_000)
    ]


def test_a_dump_keeps_what_was_measured_and_how_far_it_is(server: Any, made: Any) -> None:
    plan = plan_of_chain(made.connect())
    job = store(made, "owner1", "syn", plan, chain())
    session = writer(made, "owner1")
    for _ in range(4):
        session.execute("select dp.synthesis_step(%s)", (job,))
    copy = dump_and_restore(server, made, "c")
    try:
        copy.sql("select dp.acknowledge_restore('a copy')")
        write(writer(copy, "owner1"), job)
        write(session, job)
        assert contents(copy.connect(), "syn") == contents(made.connect(), "syn")
        copy.sql("select dp.drop_synthesis('syn')", user="owner1")
    finally:
        server.drop_database(copy)


def test_owners_see_syntheses_of_what_they_own(made: Any) -> None:
    store(made, "owner1", "syn", plan_of_chain(made.connect()), chain())
    made.sql("grant dp_owner to mallory")
    shown = "select target, made_by::text, state, epsilon, cardinality(reads) from dp.syntheses"
    assert made.sql(shown, user="owner1") == [("syn", "owner1", "measured", 1, 4)]
    assert made.sql(shown, user="mallory") == []
    for table in ("person", "account", "booking", "member"):
        assert made.sql(shown, user="mallory") == []
        made.sql(f"alter table public.{table} owner to mallory")
    assert made.sql(shown, user="mallory") == [("syn", "owner1", "measured", 1, 4)]


def test_a_public_table_that_changes_meanwhile_is_noticed(made: Any) -> None:
    """Rows are left out where the last region is missing, which another session would not do."""
    admin = made.connect()
    plan = plan_of_chain(admin)
    generated = chain()
    job = store(made, "owner1", "syn", plan, generated)
    session = writer(made, "owner1")
    for _ in range(2):
        session.execute("select dp.synthesis_step(%s)", (job,))
    admin.execute("delete from public.region")
    with pytest.raises(psycopg.Error, match="a public table has changed"):
        write(writer(made, "owner1"), job)


def test_an_error_of_the_server_is_told_and_the_rest_can_be_written(made: Any) -> None:
    """A trigger of the caller's own, which runs with his rights, refuses rows."""
    job = store(made, "owner1", "syn", plan_of_chain(made.connect()), chain())
    session = writer(made, "owner1")
    session.execute("select dp.synthesis_step(%s)", (job,))
    session.execute(
        "create function syn.no() returns trigger language plpgsql as $$ begin"
        " raise exception 'refused as %, with %', current_user, current_setting('search_path'); end $$;"
        "create trigger no before insert on syn.person execute function syn.no()"
    )
    with pytest.raises(psycopg.Error, match="could not be written") as raised:
        write(session, job)
    assert raised.value.sqlstate == "PD010"
    assert "refused as owner1, with pg_catalog, pg_temp" in str(raised.value.diag.message_detail)
    session.execute("drop trigger no on syn.person")
    write(session, job)
    assert made.sql("select count(*) from syn.person") == [(300,)]
