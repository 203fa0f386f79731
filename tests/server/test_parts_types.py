"""Values of each type over parts on other servers: told exactly, and counted where they are.

The same rows are on two shards and, in ``whole``, here.  Without noise both give the same answers,
at the ends of the types as well; of each question no more than groups is sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.server.asking import silent
from tests.server.in_service import in_service
from tests.server.shards import Shards, sharded
from tests.server.test_parts_pushed import scans

SHARDS = 2
#: How often each value is stored.
COPIES = 40
DAYS = [
    "4714-11-24 00:00:00 BC",
    "0001-12-31 BC",
    "1582-10-15",
    "1999-12-31",
    "2000-01-01",
    "2024-02-29",
    "2024-03-31",
    "2024-10-27",
    "200000-01-01",
    "200001-06-01",
    "infinity",
    "-infinity",
    None,
]
MOMENTS = [
    *(
        f"{day} {time}"
        for day in ("2024-03-31", "1999-12-31")
        for time in ("01:59:59.999999", "23:00")
    ),
    "200000-01-01 00:00:00.000001",
    "294276-12-31 23:59:59.999999",
    "2024-10-27 00:30",
    "2024-10-27 01:30",
]
VALUES: dict[str, tuple[str, list[str | None]]] = {
    "i": ("int", ["0", "1", "12", "-2147483648", "2147483647", None]),
    "num": (
        "numeric",
        ["0", "1", "1.0", "1.00", "2.5", "-2.50", "1e-30", "1e99", "NaN", "Infinity", "-Infinity", None],
    ),
    "n2": ("numeric(10,2)", ["0", "1", "2.55", "99999999.99", "NaN", None]),
    "f8": (
        "float8",
        ["0", "-0", "1", "0.1", "1e-300", "1.7976931348623157e308", "5e-324", "NaN", "Infinity", "-Infinity", None],
    ),
    "f4": ("float4", ["0", "-0", "0.1", "3.4028235e38", "1e-45", "NaN", "Infinity", None]),
    "c": ("bpchar", ["a", "a ", "a   ", "b", "", None]),
    "c5": ("char(5)", ["a", "ab", "", "abcde", None]),
    "t": ("text", ["a", "a ", "A", "", "it's \\ \"odd\"\n\t%_", "ß€😀", "1", None]),
    "v": ("varchar(8)", ["a", "a ", "2.5", "", "\\'", None]),
    "b": ("boolean", ["t", "f", None]),
    "d": ("date", [*DAYS, "5874897-12-31"]),
    "ts": ("timestamp", [*DAYS, *MOMENTS]),
    "tz": ("timestamptz", [*DAYS, *(f"{m} UTC" for m in MOMENTS)]),
    "tm": ("time", ["00:00", "00:59:59.999999", "01:00", "12:30", "23:59:59.999999", "24:00", None]),
    "iv": (
        "interval",
        ["1 mon", "30 days", "720:00", "-1 mon +1 day -00:00:01", "0", "-178000000 years", "12:34:56.789", None],
    ),
    "by": ("bytea", ["\\x", "\\x00", "\\x5c27ff", None]),
    "u": ("uuid", ["00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff", None]),
    "ch": ('"char"', ["a", "\\200", None]),
}  # fmt: skip
ROWS = COPIES * max(len(values) for _, values in VALUES.values())
#: What would not be sent as it is written, and what is read of each group.
LATE = {
    "extract(month from d) = 12": "d",
    "extract(month from ts) = 12": "days",
    "extract(dow from ts) = 2": "days",
    "extract(year from ts) > 2000": "days",
    "extract(decade from ts) = 'Infinity'": "days",
    "date_part('century', ts) = 21": "days",
    "date_trunc('month', ts) >= '2024-01-01'": "days",
    "date_trunc('week', ts) < '2024-01-01'": "days",
    "date_trunc('hour', ts) = '2024-10-27 00:00'": "ts",
    "extract(epoch from ts) > 0": "ts",
    "extract(year from tz) = 2024": "tz",
    "extract(epoch from tz) > 0": "tz",
    "extract(epoch from iv) = 2592000": "iv",
    "extract(month from iv) = 1": "iv",
    "num::text = '1.00'": "num",
    "num::varchar(3) = '1.0'": "num",
    "i::text = '12'": "i",
    "b::text = 'true'": "b",
    "ch::text = 'a'": "ch",
    "(b is unknown) and coalesce(num, 1) = 1": "b",
    "c like 'a _%' and (b or extract(day from d) = 31)": "b c d",
    "t collate \"C\" < 'a'": "t",
}
#: What is sent to be computed there.
SENT = [
    "i = 1",
    "num = 1.0",
    "num > 1e98",
    "num in (1, 2.5)",
    "n2 = 'NaN'",
    "f8 = 0",
    "f8 = 'NaN'",
    "f8 * 2 = 0.2",
    "f4 > 1e38",
    "c = 'a'",
    "c5 = 'a' and c5 like 'a    '",
    "t = 'a '",
    "t like 'it''s \\\\ \"%\"%'",
    "t ilike 'A'",
    "length(t) = 3",
    "octet_length(t) > 8",
    "upper(t) = 'A'",
    "t || v = 'aa'",
    "t = v",
    "b is not true",
    "d = 'infinity'",
    "d > '2024-02-28'",
    "d + 1 = '2000-01-01'",
    "ts::date = '2024-03-31'",
    "ts::time >= '23:00'",
    "ts > '2024-03-31 01:00'",
    "ts - interval '1 day' < '2000-01-01'",
    "extract(hour from ts) = 23",
    "date_part('hour', ts) = 23",
    "extract(hour from tm) = 24",
    "extract(hour from tm) < 1",
    "date_trunc('day', ts) = '2024-03-31'",
    "tz > '2024-03-31 01:00'",
    "tz = 'infinity'",
    "iv = interval '1 mon'",
    "by = '\\x00'",
    "u > '00000000-0000-0000-0000-000000000000'",
    "greatest(i, 1) = 1",
    "least(num, 2, 1.5) = 1.5",
    "least(greatest(num, 5), 2) = 2",
    "least(greatest(f8, -1), 2) = 2",
    "coalesce(t, 'x') = 'x'",
    "nullif(i, 1) is null",
    "i::numeric = num",
    "num::int = 1",
    "f8::numeric = 0.1",
    "case when i > 0 then f8 else 1 end = 1",
]
AGGREGATES = {
    "count(distinct num)": "num",
    "count(distinct f8)": "f8",
    "count(distinct c)": "c",
    "count(distinct t)": "t",
    "count(distinct date_trunc('year', ts))": "days",
    "count(distinct extract(hour from tm))": "tm",
    "sum(num, 0, 10)": None,
    "sum(f8, 0, 10)": None,
    "sum(f4, -1, 1)": None,
    "sum(extract(month from ts), 0, 12)": "days",
    "sum(extract(epoch from tm), 0, 86400)": "tm",
    "histogram(num, 0, 4, 4)": "num",
    "histogram(f8, 0, 4, 4)": "f8",
    "histogram(ts, '2024-01-01', '2025-01-01', 4)": "ts",
}
#: In UTC moments are as they are stored; elsewhere what is read of them is grouped by.
ZONED = [
    "tz::date = '2024-03-31'",
    "extract(hour from tz) = 1",
    "extract(hour from tz) = 23",
    "date_trunc('day', tz) = '2024-10-27'",
    "tz >= date '2024-03-31'",
    "(tz at time zone 'Etc/UTC')::time < '02:00'",
]
ENUMS = [
    "count(*) from {} where e = 'sad'",
    "count(*) from {} where e in ('sad', 'happy') and extract(month from d) = 12",
    "count(*) from {} where e::text = 'sad'",
    "count(distinct e) from {}",
]
GROUPS = ["extract(hour from ts)", "extract(dow from ts)", "width_bucket(num, 0, 2, 2)", "b"]


def quoted(value: str | None) -> str:
    return "null" if value is None else "'" + value.replace("'", "''") + "'"


@pytest.fixture(scope="module")
def shards(server: Any) -> Iterator[Shards]:
    listed = ", ".join(f"{name} {kind}" for name, (kind, _) in VALUES.items())
    with sharded(server, SHARDS) as found:
        for database in (found.near, *found.far):
            database.sql("create type mood as enum ('sad', 'happy')")
        found.table("r", f"id int, {listed}, e mood", "id")
        arrays = [f"array[{', '.join(map(quoted, v))}]" for _, v in VALUES.values()]
        chosen = [
            f"({array})[1 + i % {len(values)}]::{kind}"
            for array, (kind, values) in zip(arrays, VALUES.values(), strict=True)
        ]
        found.near.sql(
            f"set timezone = 'UTC'; create table whole (id, {', '.join(VALUES)}) as"
            f" select i, {', '.join(chosen)} from generate_series(1, {ROWS}) as i;"
            # the same moments to the day, and none twice
            " update whole set ts = ts + id * interval '1 second' where ts > '2000-01-01' and"
            " ts < '200000-01-01' and ts = ts::date;"
            " alter table whole owner to owner1"
        )
        found.near.sql("alter table whole add e mood; update whole set e = 'sad' where id % 3 = 0")
        found.near.sql("insert into r select * from whole")
        found.near.sql(
            "select dp.protect('r'), dp.protect('whole');"
            " select dp.declare_shards('r', written => 'coordinator');"
            " select dp.grant_budget('owner1', epsilon => 1e6, delta => 1e-3);"
            " select dp.grant_budget('postgres', epsilon => 1e6, delta => 1e-3);"
            " select dp.set_root_cap('r', 1e9, 1e-3), dp.set_root_cap('whole', 1e9, 1e-3)",
            user="owner1",
        )
        found.near.sql("analyze r, whole")
        yield found


def told(session: Any, statement: str) -> list[str]:
    """Return what dp.explain says of rows that are sent."""
    rows = session.execute(
        "select value from dp.explain(%s) where item = 'rows sent'", (statement,)
    ).fetchall()
    return [value for (value,) in rows]


def test_values_of_all_types_come_back_as_they_are(shards: Shards) -> None:
    names = ", ".join(f"{name}::text" for name in VALUES)
    exact = f"id, {names}, float8send(f8), float4send(f4), octet_length(c), interval_send(iv)"
    with shards.near.connect() as session:
        for style in ("ISO, DMY", "SQL, MDY", "German"):
            for intervals in ("postgres", "sql_standard"):
                session.execute("select set_config('datestyle', %s, false)", (style,))
                session.execute("select set_config('intervalstyle', %s, false)", (intervals,))
                session.execute("set timezone = 'Asia/Kathmandu'; set extra_float_digits = 0")
                ((missing,),) = session.execute(
                    f"select count(*) from (select {exact} from whole except all"
                    f" select {exact} from r) as d"
                ).fetchall()
                ((found,),) = session.execute("select count(*) from r").fetchall()
                assert (missing, found) == (0, ROWS), (style, intervals)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_answers_are_those_of_one_server(shards: Shards, zone: str) -> None:
    questions = [f"dp_count(*) from {{}} where {c}" for c in (*LATE, *SENT, *ZONED)]
    questions += [f"dp_{aggregate} from {{}}" for aggregate in AGGREGATES]
    questions += [f"{key} as k, dp_count(*) from {{}} group by 1 order by 1" for key in GROUPS]
    counted = 0
    with silent(shards.near, "whole") as session:
        session.execute("select set_config('timezone', %s, false)", (zone,))
        for question in questions:
            here, there = (
                session.execute(f"select {question.format(name)}").fetchall()
                for name in ("whole", "r")
            )
            assert there == here, question
            counted += any(row[-1] not in (0, None) for row in here)
    # a condition that no row meets tells little
    assert counted > 0.9 * len(questions)


@dataclass(frozen=True, slots=True)
class Sent:
    """Tells how many rows the shards send, those that are not wanted here included, and for what."""

    owner: Any
    executor: Any

    def __call__(self, statement: str, zone: str = "Europe/Berlin") -> tuple[int, list[str]]:
        self.owner.execute("select set_config('timezone', %s, false)", (zone,))
        rows = self.owner.execute(
            "select value from dp.explain(%s) where item = 'counting SQL'", (statement,)
        ).fetchall()
        total, remote = 0, []
        for (text,) in rows:
            ((plan,),) = self.executor.execute(
                f"explain (analyze, verbose, format json) {text}"
            ).fetchall()
            for scan in scans(plan[0]["Plan"]):
                total += scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0)
                remote.append(scan["Remote SQL"])
        return total, remote


@pytest.fixture(scope="module")
def sent(shards: Shards) -> Iterator[Sent]:
    with shards.near.connect("owner1") as owner, shards.near.connect() as executor:
        executor.execute("set role dp_executor; set search_path = pg_catalog, pg_temp")
        yield Sent(owner, executor)


def groups(what: str) -> int:
    """Count the groups of one shard."""
    found = 1
    for name in what.split():
        # the days of the moments are fewer than they
        found *= len(DAYS) + len(MOMENTS) if name == "days" else len(VALUES[name][1])
    return found


@pytest.mark.parametrize("condition", LATE)
def test_what_is_not_sent_is_computed_of_groups(sent: Sent, condition: str) -> None:
    read = LATE[condition]
    total, remote = sent(f"select dp_count(*) from r where {condition}")
    assert all("GROUP BY" in sql for sql in remote), remote
    if "ts" not in read.split():  # no two of which are alike
        assert total <= SHARDS * groups(read) < ROWS, (total, remote)


@pytest.mark.parametrize("condition", SENT)
def test_what_is_sent_is_counted_there(sent: Sent, condition: str) -> None:
    total, remote = sent(f"select dp_count(*) from r where {condition}")
    assert total == SHARDS, remote


@pytest.mark.parametrize("condition", ZONED)
def test_moments_in_utc_are_counted_there(sent: Sent, condition: str) -> None:
    total, remote = sent(f"select dp_count(*) from r where {condition}", "UTC")
    assert total == SHARDS, remote


@pytest.mark.parametrize("aggregate", AGGREGATES)
def test_of_other_aggregates_groups_are_sent(sent: Sent, aggregate: str) -> None:
    read = AGGREGATES[aggregate]
    total, remote = sent(f"select dp_{aggregate} from r")
    assert all("GROUP BY" in sql or "sum(" in sql for sql in remote), remote
    if read != "ts":
        assert total <= SHARDS * groups(read or "") < ROWS, (total, remote)


def test_rows_are_sent_for_enums_that_no_extension_shares(shards: Shards, sent: Sent) -> None:
    """And it is told; where a type is an extension's that the shards have, groups are."""
    share = "alter extension postgres_fdw {} type mood"
    options = "alter server shard0 options ({0} extensions {1}); alter server shard1 options ({0} extensions {1})"
    with silent(shards.near, "whole") as session:
        for statement in ENUMS:
            here, there = (
                session.execute(f"select dp_{statement.format(name)}").fetchall()
                for name in ("whole", "r")
            )
            assert there == here != [(0,)], statement
    for statement in ENUMS:
        asked = f"select dp_{statement.format('r')}"
        assert sent(asked)[0] == ROWS
        (found,) = told(sent.owner, asked)
        assert found.startswith("those of public.r, one by one")
        assert "about e, of" in found
    shards.near.sql(share.format("add"))
    shards.near.sql(options.format("add", "'postgres_fdw'"))
    try:
        for statement in ENUMS:
            asked = f"select dp_{statement.format('r')}"
            total, remote = sent(asked)
            assert total <= 3 * len(VALUES["d"][1]) * SHARDS, remote
    finally:
        shards.near.sql(options.format("drop", ""))
        shards.near.sql(share.format("drop"))


def test_where_no_row_is_sent_nothing_is_said_of_them(sent: Sent) -> None:
    assert not told(sent.owner, "select dp_count(*) from r where num > 1")
    assert not told(sent.owner, "select dp_count(*) from whole where e = 'sad'")


def test_without_what_tells_equal_values_apart_answers_differ(shards: Shards) -> None:
    mutant = in_service("""
from dpsql.query import late
late._APART.clear()
""")
    with silent(shards.near, "whole", mutant) as session:
        for condition in ("num::text = '1.00'", "extract(month from iv) = 1"):
            here, there = (
                session.execute(f"select dp_count(*) from {name} where {condition}").fetchall()
                for name in ("whole", "r")
            )
            assert here != there
