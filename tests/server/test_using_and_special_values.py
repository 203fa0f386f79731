"""JOIN ... USING means what ON means, and casts keep NaN, infinities and the ends of types."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from dpsql.errors import NotAnswerable
from dpsql.query.pipeline import analyse
from tests.server.analyser_catalog import LiveCatalog
from tests.server.test_analyser_queries import answer, truth

SPECIAL = ("NaN", "Infinity", "-Infinity", "0", "1", "1.5", "-2", None)
NUMBERS = {
    "i2": ("smallint", ("0", "1", "-2", None)),
    "i4": ("integer", ("0", "1", "-2", None)),
    "i8": ("bigint", ("0", "1", "-2", None)),
    "n": ("numeric", (*SPECIAL, "1e100", "3.4e38", "1e308", "1e-300", "1e-45", "1.50")),
    "np": ("numeric(6,2)", ("NaN", "0", "1", "1.5", "-2", None)),
    "f4": ("real", (*SPECIAL, "-0", "3.4e38", "1e-45")),
    "f8": ("double precision", (*SPECIAL, "-0", "1e100", "1e308", "1e-300", "3.4e38", "1e-45")),
}
OTHERS = {
    "v5": ("varchar(5)", ("a", "a ", "b", None)),
    "v9": ("varchar(9)", ("a", "a  ", "b", None)),
    "t": ("text", ("a", "a ", "b", None)),
    "ch": ("character(3)", ("a", "b", None)),
    "ch4": ("character(4)", ("a", "b", None)),
    "d": ("date", ("2000-01-01", "infinity", "-infinity", "2000-01-02", None)),
    "ts": ("timestamp", ("2000-01-01 00:00", "infinity", "-infinity", "2000-01-01 12:00", None)),
    "tz": ("timestamptz", ("2000-01-01 00:00+00", "2000-01-02 00:00+00", None)),
    "u": ("uuid", ("00000000-0000-0000-0000-000000000000", None)),
    "m": ("mood", ("sad", "ok", None)),
}
# no equality of these is in the allow-list
FOREIGN = {
    "bit5": ("bit(5)", ("10101", "10010")),
    "vb": ("varbit(5)", ("10101", "10")),
    "ip": ("inet", ("10.0.0.1",)),
    "mac": ("macaddr", ("08:00:2b:01:02:03",)),
    "cash": ("money", ("1",)),
    "dom": ("small", ("1",)),
}
COLUMNS = {**NUMBERS, **OTHERS, **FOREIGN}
PAIRS = [
    *itertools.product(NUMBERS, NUMBERS),
    *itertools.product(("v5", "v9", "t", "ch", "ch4"), repeat=2),
    *itertools.product(("d", "ts"), repeat=2),
    ("tz", "tz"),
    ("u", "u"),
    ("m", "m"),
]


@pytest.fixture(scope="module")
def catalog(server: Any) -> Iterator[LiveCatalog]:
    database = server.create_database()
    connection = database.connect()
    connection.execute("create type public.mood as enum ('sad', 'ok')")
    connection.execute("create domain public.small as int")
    for table in ("l", "r"):
        columns = ", ".join(f"{name} {type_}" for name, (type_, _) in COLUMNS.items())
        connection.execute(f"create table public.{table} ({columns})")
        for name, (_, values) in COLUMNS.items():
            for value in values:
                connection.execute(f"insert into public.{table} ({name}) values (%s)", (value,))
    yield LiveCatalog(connection, {"public.l": True, "public.r": True})
    server.drop_database(database)


def same_count(catalog: LiveCatalog, text: str) -> int:
    question = analyse(catalog.analyze(text), catalog)
    (count,) = answer(catalog, question)[0].values()
    assert count == truth(catalog, question, text)[0][0]
    return count


@pytest.mark.parametrize(("left", "right"), PAIRS)
def test_using_and_on_count_what_postgresql_counts(
    catalog: LiveCatalog, left: str, right: str
) -> None:
    on = same_count(catalog, f"select dp_count(*) from l join r on l.{left} = r.{right}")
    sides = f"(select {left} as k from l) a join (select {right} as k from r) b using (k)"
    assert same_count(catalog, f"select dp_count(*) from {sides}") == on > 0
    # the merged column stands for the side that has PostgreSQL's type for it
    assert same_count(catalog, f"select dp_count(k) from {sides} where k is not null") == on


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("join", ["join r using ({0})", "join r on l.{0} = r.{0}"])
def test_using_refuses_the_types_that_on_refuses(
    catalog: LiveCatalog, name: str, join: str
) -> None:
    with pytest.raises(NotAnswerable, match="not allowed") as caught:
        analyse(catalog.analyze(f"select dp_count(*) from l {join.format(name)}"), catalog)
    assert caught.value.position


def test_a_natural_join_checks_every_common_column(catalog: LiveCatalog) -> None:
    with pytest.raises(NotAnswerable, match=r"bit\(5\)|type bit"):
        analyse(catalog.analyze("select dp_count(*) from l natural join r"), catalog)


TARGETS = ("numeric", "numeric(6,2)", "real", "double precision")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", NUMBERS)
def test_casts_among_numeric_and_floats_keep_special_values(
    catalog: LiveCatalog, source: str, target: str
) -> None:
    """PostgreSQL itself must be able to cast a value, else there is nothing to compare."""
    for value in NUMBERS[source][1]:
        if value is None or (target, value) not in POSSIBLE:
            continue
        typed = f"'{value}'::{NUMBERS[source][0]}"
        text = f"select count(*) from l where {source} = {typed}"
        catalog.connection.execute("set search_path = public")
        plain = catalog.connection.execute(text).fetchone()[0]  # type: ignore[arg-type,index]
        condition = f"{source}::{target} = {typed}::{target} and {source} = {typed}"
        question = analyse(catalog.analyze(f"select dp_count(*) from l where {condition}"), catalog)
        (count,) = answer(catalog, question)[0].values()
        assert count == plain > 0, (source, value, target)


POSSIBLE = {
    (target, value)
    for target in TARGETS
    for value in {v for _, values in NUMBERS.values() for v in values if v is not None}
    if target in ("numeric", "double precision")
    or (target == "real" and value not in ("1e100", "1e308", "1e-300"))
    or (target == "numeric(6,2)" and value in ("NaN", "0", "-0", "1", "1.5", "1.50", "-2"))
}
