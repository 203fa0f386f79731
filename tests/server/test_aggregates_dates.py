"""Values by rank and histograms of dates and timestamps, under both kinds of neighbours.

The noise is taken away in most sessions here; what is left must be PostgreSQL's own answer about
values in the bounds, to the width of a cell.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timedelta
from typing import Any

import pytest

from tests.property.test_units_match_the_join import BOUND
from tests.server import asking
from tests.server.asking import refused

pytestmark = pytest.mark.server

# Both tables hold the same moments; those of "own" belong to ten people. Some are infinite or NULL.
SET_UP = """
create table moment (id int primary key, k int not null, d date, t timestamp, z timestamptz(3),
  declared date, bounded timestamp, whole date not null);
insert into moment
select g, g % 2, date '1992-01-01' + g % 2000, timestamp '2020-02-29 23:59:59.999999' + g * interval '1 min',
  timestamptz '2021-06-01 12:00:00+00' + g * interval '1 second', date '1990-06-15' + g % 3000,
  timestamp '2020-01-01' + g * interval '1 hour', date '0001-01-01' + g * 700
  from generate_series(0, 3999) g;
update moment set d = 'infinity', t = 'infinity', z = 'infinity', declared = 'infinity', bounded = 'infinity'
 where id % 100 = 0;
update moment set d = '-infinity', t = '-infinity', z = '-infinity', declared = '-infinity'
 where id % 100 = 1;
update moment set d = null, t = null, z = null, declared = null, bounded = null where id % 100 = 2;
create table person (id int primary key);
insert into person select generate_series(0, 9);
create table own (like moment including all, p int not null references person);
insert into own select m.*, m.id % 10 from moment m;
create table none (d date, t timestamp, z timestamptz);
select dp.protect('moment', delta => 1), dp.protect('none'),
  dp.protect('person', privacy_unit => 'id', delta => 1);
select dp.set_domain(r, 'declared', '1991-01-01', '1994-12-31'), dp.set_domain(r, 'k', 0, 1),
  dp.set_domain(r, 'bounded', '2020-01-01', '2020-06-01') from unnest(array['moment', 'own']::regclass[]) r;
select dp.grant_budget('postgres', 1e6, 1), dp.grant_budget('alice', 1e6, 1);
grant usage on schema public to alice;
"""
BOUNDS = {
    "d": ("1992-01-01", "1998-12-31"),
    "t": ("2020-02-29", "2020-03-03 12:00:00.000001"),
    "z": ("2021-06-01 12:00:00+00", "2021-06-01 13:00:00+00"),
    "whole": ("0001-01-01", "9999-12-31"),
}
TYPES = {"d": "date", "t": "timestamp", "z": "timestamptz", "whole": "date"}


@pytest.fixture(scope="module")
def moments(server: Any) -> Iterator[Any]:
    yield from asking.made(server, SET_UP)


@pytest.fixture(scope="module")
def silent(moments: Any) -> Iterator[Any]:
    with asking.silent(moments, "moment", BOUND.format(2**40)) as session:
        session.execute("set dp.epsilon = 100")
        yield session


@pytest.fixture
def alice(moments: Any) -> Iterator[Any]:
    with moments.connect("alice") as session:
        yield session


def one(session: Any, statement: str) -> Any:
    ((value,),) = session.execute(statement).fetchall()
    return value


def clamped(column: str, low: str, high: str) -> str:
    type_ = TYPES[column]
    return f"least(greatest({column}, {type_} '{low}'), {type_} '{high}')"


def days(value: Any) -> float:
    """Return a moment as a number of days."""
    if isinstance(value, datetime):
        return (value.replace(tzinfo=None) - datetime(1970, 1, 1)) / timedelta(days=1)
    return float(value.toordinal())


@pytest.mark.parametrize("relation", ["moment", "own"])
@pytest.mark.parametrize("column", list(BOUNDS))
@pytest.mark.parametrize("share", ["0.1", "0.5", "0.975"])
def test_a_share_of_the_results_lies_below(
    silent: Any, relation: str, column: str, share: str
) -> None:
    low, high = BOUNDS[column]
    found = one(
        silent, f"select dp_percentile({column}, {share}, '{low}', '{high}') from {relation}"
    )
    own = one(
        silent,
        f"select percentile_disc({share}) within group (order by {clamped(column, low, high)})"
        f" from {relation} where {column} is not null",
    )
    assert type(found) is type(own)
    if column == "d":
        assert found == own
        return
    width = one(silent, f"select extract(epoch from {TYPES[column]} '{high}' - {TYPES[column]} '{low}')"
                ) if column != "whole" else 3652058 * 86400  # fmt: skip
    # a cell, and a microsecond of rounding
    assert abs(days(found) - days(own)) * 86400 <= float(width) / 2**16 + 1e-5 + 86400 * (
        column == "whole"
    )


@pytest.mark.parametrize("relation", ["moment", "own"])
def test_declared_ranges_are_bounds(silent: Any, relation: str) -> None:
    own = "least(greatest(declared, date '1991-01-01'), date '1994-12-31')"
    ((median, least, most, grouped),) = silent.execute(
        "select dp_median(declared), dp_min(declared), dp_max(declared),"
        f" dp_median(declared) filter (where k = 1) from {relation}"
    ).fetchall()
    for found, condition in ((median, "true"), (grouped, "k = 1")):
        assert found == one(
            silent,
            f"select percentile_disc(0.5) within group (order by {own}) from {relation}"
            f" where declared is not null and {condition}",
        )
    bounded = one(silent, f"select dp_max(bounded) from {relation}")
    if relation == "moment":  # without a bound of units the extremes are sought far inside
        assert (least, most) == (date(1991, 1, 1), date(1994, 12, 31))
        assert bounded > datetime(2020, 5, 31, 23)
    assert bounded <= datetime(2020, 6, 1)
    groups = silent.execute(f"select k, dp_median(declared) from {relation} group by k").fetchall()
    assert [k for k, _ in groups] == [0, 1]
    assert all(date(1991, 1, 1) <= found <= date(1994, 12, 31) for _, found in groups)


@pytest.mark.parametrize("relation", ["moment", "own"])
@pytest.mark.parametrize("column", list(BOUNDS))
def test_histograms_count_what_lies_inside(silent: Any, relation: str, column: str) -> None:
    low, high = BOUNDS[column]
    type_ = TYPES[column]
    found = one(silent, f"select dp_histogram({column}, '{low}', '{high}', 7) from {relation}")
    epoch = f"extract(epoch from {column}) - extract(epoch from {type_} '{low}')"
    whole = f"extract(epoch from {type_} '{high}') - extract(epoch from {type_} '{low}')"
    own = dict(
        silent.execute(
            f"select least(trunc(7 * ({epoch}) / ({whole})), 6)::int, count(*) from {relation}"
            f" where {column} between '{low}' and '{high}' group by 1"
        ).fetchall()
    )
    assert found == [own.get(cell, 0) for cell in range(7)]


def test_histograms_move_what_a_declaration_moves(silent: Any) -> None:
    """The range begins in 1991 and ends in 1994: other days, infinite ones too, are its ends."""
    found = one(silent, "select dp_histogram(declared, '1988-01-01', '1997-12-31', 10) from own")
    assert found[:3] == [0] * 3
    assert found[7:] == [0] * 3
    assert sum(found) == one(silent, "select count(*) from own where declared is not null")
    # the last cell holds its upper end
    found = one(silent, "select dp_histogram(declared, '1994-12-30', '1994-12-31', 1) from own")
    late = "select count(*) from own where declared >= '1994-12-30'"
    assert found == [one(silent, late)]


def test_of_nothing_a_moment_in_the_bounds_is_told(alice: Any) -> None:
    alice.execute("set dp.epsilon = 1; set timezone = 'UTC'")
    low, high = "2001-01-01", "2001-02-01"
    for column, type_ in (("d", "date"), ("t", "timestamp"), ("z", "timestamptz")):
        zone = "+00" if column == "z" else ""
        ends = f"{type_} '{low}{zone}', {type_} '{high}{zone}'"
        for aggregate in ("min", "max", "median"):
            found = one(alice, f"select dp_{aggregate}({column}, {ends}) from none")
            first = date(2001, 1, 1) if column == "d" else datetime(2001, 1, 1)
            assert 0 <= days(found) - days(first) <= 31


def test_bounds_of_no_width_and_parameters(alice: Any) -> None:
    alice.execute("set dp.epsilon = 1; set timezone = 'Asia/Kathmandu'")
    end = "timestamptz '2001-01-01 12:00:00.123456+00'"
    assert one(alice, f"select dp_median(z, {end}, {end}) = {end} from moment") is True
    found = alice.execute(
        "select dp_median(t, %s::timestamp, %s::timestamp) from moment",
        (datetime(2020, 1, 1), datetime(2020, 1, 2)),
    ).fetchone()[0]
    assert datetime(2020, 1, 1) <= found <= datetime(2020, 1, 2)
    # a date is its midnight
    found = one(alice, "select dp_max(t, date '2020-01-01', date '2020-01-02') from moment")
    assert datetime(2020, 1, 1) <= found <= datetime(2020, 1, 2)


# The limits of types bound nothing, not those of a type that a value is cast to either.
UNBOUNDED = [
    ("dp_max", "d"),
    ("dp_min", "z"),
    ("dp_max", "whole"),
    ("dp_min", "coalesce(d, date '2000-01-01')"),
    ("dp_median", "case when k = 1 then t end"),
    ("dp_median", "date_trunc('month', d)"),
    ("dp_median", "extract(epoch from t)"),
    ("dp_median", "extract(epoch from t)::int"),
    ("dp_min", "extract(epoch from t)::bigint"),
    ("dp_max", "date_part('epoch', z)::int"),
    ("dp_max", "(d - date '2000-01-01')::smallint"),
    ("dp_max", "(extract(epoch from t)::int + 1) / 2"),
]


@pytest.mark.parametrize("relation", ["moment", "own"])
@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("dp_median(d)", "nothing bounds"),
        ("dp_median(t)", "nothing bounds"),
        ("dp_median(declared + 1)", "nothing bounds"),
        *((f"{name}({x})", "dp.suggest_bounds(relation, column)") for name, x in UNBOUNDED),
        ("dp_max(d, '2001-01-01', '2000-01-01')", "later"),
        ("dp_max(d, '-infinity', 'infinity')", "years 1 to 9999"),
        ("dp_max(t, '0044-03-15 BC', '2000-01-01')", "years 1 to 9999"),
        ("dp_max(t, t, t)", "years 1 to 9999"),
        ("dp_histogram(d, '2001-01-01', '2000-01-01', 3)", "increasing bounds"),
        ("dp_histogram(d, '2001-01-01', null, 3)", "years 1 to 9999"),
        ("dp_sum(d)", "does not exist"),
    ],
)
def test_refusals_name_what_is_wrong(
    moments: Any, alice: Any, call: str, said: str, relation: str
) -> None:
    before = moments.sql("select count(*) from dp.spend")
    error = refused(alice, f"select {call} from {relation}")
    assert said in str(error)
    assert error.sqlstate == ("42883" if said == "does not exist" else "PD011")
    assert moments.sql("select count(*) from dp.spend") == before


@pytest.mark.parametrize("relation", ["moment", "own"])
@pytest.mark.parametrize(
    "value",
    [
        "extract(month from t)::int",
        "extract(epoch from declared)::int",
        "(extract(epoch from declared)::int * 7)::bigint::int",
        "(declared - date '1990-01-01')::smallint",
        "(extract(epoch from t)::bigint % 7)::int",
        "case when extract(epoch from t)::int between 0 and 9 then extract(epoch from t)::int end",
        "least(greatest(extract(epoch from t)::int, 0), 9)",
    ],
)
def test_casts_keep_bounds_that_are_known(alice: Any, relation: str, value: str) -> None:
    alice.execute(f"select dp_median({value}) from {relation}")
