"""Synthetic tables of a plan and of generated rows: every constraint of the original holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import psycopg
import pytest
from synthesising import read_plan, rows, store, write, writer

from dpsql.synthesis.generated import Generated
from dpsql.synthesis.schema import Attribute
from tests.server.chained import LEVELS, REGIONS, chain, contents, plan_of_chain


def test_a_chain_with_links_is_written_with_all_constraints(chained: Any) -> None:
    admin = chained.connect()
    job = store(chained, "owner1", "syn", plan_of_chain(admin), chain())
    session = writer(chained, "owner1")
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


def test_tables_of_one_row_and_of_none(chained: Any) -> None:
    admin = chained.connect()
    plan = plan_of_chain(admin)
    for n, sizes in enumerate([(1, 1, 1, 1), (1, 0, 5, 5), (0, 4, 4, 4)]):
        job = store(chained, "owner1", f"syn{n}", plan, chain(*sizes))
        write(writer(chained, "owner1"), job)
    counts = [
        {name: len(found) for name, found in contents(admin, f"syn{n}").items()} for n in range(3)
    ]
    assert list(counts[0].values()) == [1, 1, 1, 1]
    assert counts[1] == {"syn1.account": 0, "syn1.booking": 0, "syn1.member": 0, "syn1.person": 1}
    assert set(counts[2].values()) == {0}
    notes = chained.sql("select notes from dp.synthesis where target = 'syn1'")[0][0]
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


def test_links_are_numbers_of_the_listed_rows(chained: Any) -> None:
    job = store(
        chained,
        "owner1",
        "syn",
        plan_of_chain(chained.connect()),
        [
            REGIONS,
            Generated(
                5,
                np.zeros((5, 4), int),
                tuple(map(tuple, LEVELS[1])),
                (np.full(5, -1), np.array([4, 3, 2, 1, 0])),
            ),
            *chain(5, 3, 3, 3)[2:],
        ],
    )
    write(writer(chained, "owner1"), job)
    assert chained.sql("select p_region from syn.person order by p_id") == [
        (5,),
        (4,),
        (3,),
        (2,),
        (1,),
    ]
