"""Fields of dates and times are public groups by extract and date_part, and in each type."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

SET_UP = """
create table seen (d date not null, t timestamp not null, z timestamptz not null, c time not null,
                   i interval not null);
insert into seen select '2020-01-31', '2020-01-31 13:14:15', '2020-01-31 13:14:15+00', '13:14:15', '25 hours'
  from generate_series(1, 50);
select dp.protect('seen');
select dp.set_root_cap('seen', 1e7);
select dp.grant_budget('alice', 1e7);
grant select on seen to alice;
"""
OF_DAYS = ("month", "quarter", "dow", "isodow", "day", "week", "doy")
OF_TIMES = ("hour", "minute")
FIELDS = {"d": OF_DAYS, "t": (*OF_DAYS, *OF_TIMES), "z": (*OF_DAYS, *OF_TIMES), "c": OF_TIMES}
CASTS = ("", "::integer", "::smallint", "::bigint", "::numeric", "::double precision", "::real")


def groups(session: Any, key: str) -> list[float | None] | None:
    """Return the groups that a question shows; none where they are not public."""
    del session.told[:]
    rows = session.execute(f"select {key} as k, dp_count(*) from seen group by 1").fetchall()
    if any("public" in t or "domain" in t for t in session.told):
        return None
    return sorted((None if k is None else float(k) for k, _ in rows), key=str)


@pytest.fixture
def session(database: Any) -> Any:
    """Make a relation; return a session of an analyst that keeps what it is told."""
    database.sql(SET_UP)

    class Session:
        def __init__(self) -> None:
            self.told: list[str] = []
            self.connection = database.connect(user="alice")
            self.connection.add_notice_handler(
                lambda d: self.told.append(f"{d.message_primary} {d.message_hint}")
            )

        def execute(self, text: str) -> psycopg.Cursor[Any]:
            return self.connection.execute(text)

    made = Session()
    made.execute("set dp.epsilon = 10; set timezone = 'Asia/Tokyo'")
    return made


@pytest.mark.parametrize("column", FIELDS)
def test_date_part_is_as_public_as_extract(session: Any, column: str) -> None:
    for field in FIELDS[column]:
        expected = groups(session, f"extract({field} from {column})")
        assert expected, field
        for cast in CASTS:
            for key in (
                f"extract({field} from {column}){cast}",
                f"date_part('{field}', {column}){cast}",
            ):
                assert groups(session, key) == expected, key


def test_fields_without_end_are_not_public_by_either(session: Any) -> None:
    for column, field in (("d", "year"), ("t", "epoch"), ("i", "hour"), ("z", "decade")):
        for key in (f"extract({field} from {column})", f"date_part('{field}', {column})"):
            assert groups(session, key) is None, key
