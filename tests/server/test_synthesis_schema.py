"""What a copy reads of the catalogue, and that what it learns of columns can be asked for."""

from __future__ import annotations

from typing import Any

import pytest

from dpsql.synthesis.planning import planned
from dpsql.synthesis.schema import Use
from tests.server.copying import bank, read

TABLES = ("account", "client", "disp", "loan", "trans", "elsewhere")


@pytest.fixture(scope="module")
def copied(server: Any) -> Any:
    database = bank(server.create_database())
    yield database
    server.drop_database(database)


def test_levels_of_each_attribute_are_what_is_said_of_it(copied: Any) -> None:
    tables = read(copied, *TABLES)
    alice = copied.connect(user="alice")
    alice.execute("set dp.max_rows_contributed = 2")
    seen = 0
    for table in tables.values():
        for n, a in enumerate(table.domains):
            name = f"l_{table.name}_{n}"
            if table.public:
                text = (
                    f"select {a.expression} as level, dp_count(*) from account join district"
                    " on d_id = a_district group by 1"
                )
            else:
                text = f"select {a.expression} as level, dp_count(*) from {table.name} group by 1"
            alice.execute("select dp.release(%s, %s, epsilon => 0.01, delta => 1e-9)", (name, text))
            rows = alice.execute(f"select level::text from dpv.{name}").fetchall()
            levels = {row[0] for row in rows}
            assert (None in levels) == a.nullable, (table.name, a.column)
            if a.bins:
                numbers = {str(i + 1) for i in range(len(a.bins) - 1)}
                assert levels - {None} == numbers, (table.name, a.column)
            assert len(levels) == len(rows)
            seen += 1
    assert seen == 17


@pytest.mark.parametrize(
    ("column", "low", "high"),
    [
        ("a_open", "1993-01-01", "1997-12-31"),
        ("l_amount", "0.00", "600000.00"),
        ("l_months", "1", "60"),
        ("l_rate", "0", "1"),
        ("l_score", "-1", "1"),
        ("l_paid", "-5", "5000000000"),
        ("l_at", "1990-01-01 00:00:00+00", "2000-01-01 00:00:00+00"),
        ("t_at", "1993-01-01", "1998-12-31 12:00"),
        ("t_free", "0.5", "2"),
    ],
)
def test_values_lie_in_the_bin_that_the_expression_numbers(
    copied: Any, column: str, low: str, high: str
) -> None:
    tables = read(copied, *TABLES)
    ((table, a),) = [(t, a) for t in tables.values() for a in t.domains if a.column == column]
    type_ = table.column(column).type_name
    session = copied.connect()
    edges = list(a.bins[:-1])
    rows = session.execute(
        f"select {a.expression}, least(greatest((select count(*) from unnest(%(edges)s::{type_}[]) as e"
        f' where e <= "{column}"), 1), %(last)s) from unnest(%(values)s::{type_}[]) as t("{column}")',
        {"edges": edges, "last": len(a.bins) - 1, "values": [*edges, low, high]},
    ).fetchall()
    assert [row[0] for row in rows] == [row[1] for row in rows]
    assert [row[0] for row in rows] == [*range(1, len(a.bins)), 1, len(a.bins) - 1]


def test_keys_and_columns_are_read_as_they_are_declared(copied: Any) -> None:
    tables = read(copied, *TABLES)
    assert [*tables] == [*TABLES, "district"]
    assert [t.name for t in tables.values() if t.public] == ["district"]
    loan = tables["loan"]
    assert [u.columns for u in loan.uniques] == [("l_id",), ("l_account",)]
    assert [u.primary for u in loan.uniques] == [True, False]
    assert loan.checks == ("CHECK ((l_months > 0))",)
    assert loan.column("l_double").generated
    assert loan.column("l_id").default == "gen_random_uuid()"
    assert (loan.column("l_amount").type_name, loan.column("l_amount").base) == (
        "numeric(10,2)",
        "numeric",
    )
    (key,) = loan.foreign_keys
    assert (key.columns, key.parent, key.parent_columns) == (
        ("l_account",),
        tables["account"].oid,
        ("a_id",),
    )
    assert key.problem is None
    assert [a.column for a in tables["disp"].domains] == ["p_owner"]


def test_the_bank_is_planned_parents_first(copied: Any) -> None:
    plan = planned(list(read(copied, "trans", "loan", "disp", "client", "account").values()))
    assert [p.table.name for p in plan.tables] == [
        *("district", "client", "account", "loan", "trans", "disp")
    ]
    loan = plan.tables[3]
    assert dict(loan.uses) == {
        "l_id": Use.KEY,
        "l_account": Use.REFERENCE,
        **dict.fromkeys(
            ("l_amount", "l_months", "l_status", "l_rate", "l_score", "l_paid", "l_at"),
            Use.ATTRIBUTE,
        ),
        "l_double": Use.GENERATED,
    }
    assert loan.references[0].unique
    assert plan.tables[1].references[0].nullable
    disp = plan.tables[5]
    assert [r.parent for r in disp.references] == [2, 1]
    assert disp.use("p_account") is Use.REFERENCE
    assert len(plan.notes) == 1
    assert "a_note" in str(plan.notes[0])


def test_all_other_values_are_one_level(copied: Any) -> None:
    (kind,) = (a for a in read(copied, "trans")["trans"].domains if a.column == "t_kind")
    alice = copied.connect(user="alice")
    alice.execute("set dp.max_rows_contributed = 2")
    text = f"select {kind.expression} as level, dp_count(*) from trans group by 1"
    alice.execute("select dp.release('kinds', %s, epsilon => 0.01, delta => 1e-9)", (text,))
    rows = alice.execute("select level::text from dpv.kinds").fetchall()
    assert {row[0] for row in rows} == {"in", "out", "else", None}
    assert kind.nullable
