"""SQL of the styles that Grafana, Metabase and Power BI are documented to write, on exposed views.

Noise is off where answers are compared with those of PostgreSQL over the relations.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.server import asking
from tests.server.exposing import plain

pytestmark = pytest.mark.server

DURING = "o_at BETWEEN '2024-01-05T00:00:00Z' AND '2024-03-05T00:00:00Z'"
#: What its macros $__timeGroupAlias, $__timeGroup, $__timeFilter and $__time become.
GRAFANA = [
    f'SELECT floor(extract(epoch from o_at)/86400)*86400 AS "time", count(*) AS n FROM {{o}} WHERE {DURING} GROUP BY 1 ORDER BY 1',
    f'SELECT floor(extract(epoch from o_at)/604800)*604800 AS "time", o_status AS metric, sum(o_amount) AS value FROM {{o}} WHERE {DURING}'
    " AND o_channel IN ('web') GROUP BY 1, 2 ORDER BY 1, 2",
    'SELECT date_trunc(\'month\', o_day) AS "time", avg(o_amount) AS "avg" FROM {o} GROUP BY 1 ORDER BY 1',
    'SELECT COUNT(o_id), o_status FROM {o} GROUP BY o_status LIMIT 50 ',
    'SELECT o_status AS __text, o_status AS __value FROM {o} GROUP BY 1 ORDER BY 1',
    'SELECT DISTINCT o_status FROM {o} WHERE o_channel = \'shop\'',
]  # fmt: skip
METABASE = [
    'SELECT (CAST(DATE_TRUNC(\'week\', ({o}."o_at" + INTERVAL \'1 day\')) AS timestamp) + INTERVAL \'-1 day\') AS "o_at", COUNT(*) AS "count"'
    ' FROM {o} GROUP BY (CAST(DATE_TRUNC(\'week\', ({o}."o_at" + INTERVAL \'1 day\')) AS timestamp) + INTERVAL \'-1 day\') ORDER BY 1 ASC',
    'SELECT FLOOR((({o}."o_amount" - 0.0) / 12.5)) * 12.5 + 0.0 AS "bin", COUNT(*) AS "count" FROM {o} WHERE {o}."o_status" = \'open\''
    ' GROUP BY FLOOR((({o}."o_amount" - 0.0) / 12.5)) * 12.5 + 0.0 HAVING COUNT(*) > 1000',
    'SELECT COUNT(*) AS "count" FROM {o} WHERE ({o}."o_at" >= DATE_TRUNC(\'month\', (NOW() + INTERVAL \'-400 month\'))) AND ({o}."o_at" < DATE_TRUNC(\'month\', NOW()))',
    'SELECT CAST(EXTRACT(dow from {o}."o_day") AS integer) + 1 AS "day", SUM({o}."o_amount") AS "sum" FROM {o} GROUP BY CAST(EXTRACT(dow from {o}."o_day") AS integer) + 1',
    'SELECT CAST(SUM(CASE WHEN {o}."o_status" = \'open\' THEN 1 ELSE 0.0 END) AS DOUBLE PRECISION) / NULLIF(CAST(COUNT(*) AS DOUBLE PRECISION), 0.0) AS "share" FROM {o}',
    'SELECT COUNT(*) AS "count" FROM {o} WHERE ({o}."o_status" <> \'open\' OR {o}."o_status" IS NULL) AND (LOWER({o}."o_note") LIKE \'%note 3%\')',
    'SELECT {o}."o_status" AS "o_status" FROM {o} GROUP BY {o}."o_status" ORDER BY {o}."o_status" ASC LIMIT 1000',
    'SELECT "source"."o_status" AS "o_status", AVG("source"."count") AS "avg" FROM (SELECT {o}."o_status" AS "o_status", {o}."o_channel" AS "o_channel",'
    ' COUNT(*) AS "count" FROM {o} GROUP BY {o}."o_status", {o}."o_channel") AS "source" GROUP BY "source"."o_status"',
]  # fmt: skip
POWER_BI = [
    'select "_"."o_status", "_"."a0" from ( select "rows"."o_status" as "o_status", sum("rows"."o_amount") as "a0" from ( select "o_status", "o_amount"'
    ' from {o} where "o_at" >= timestamp \'2024-02-01 00:00:00\' ) "rows" group by "o_status" ) "_" where not "_"."a0" is null limit 1000001',
    'select "_"."c_country", "_"."a0", "_"."a1" from ( select "rows"."c_country" as "c_country", sum("rows"."o_amount") as "a0", count("rows"."o_id") as "a1"'
    ' from ( select "$Outer"."o_id", "$Outer"."o_amount", "$Inner"."c_country" from {o} as "$Outer" inner join {c} as "$Inner"'
    ' on ("$Outer"."o_customer" = "$Inner"."c_id") ) "rows" group by "c_country" ) "_" where (not "_"."a0" is null) or (not "_"."a1" is null) limit 1000001',
]  # fmt: skip
#: Window functions over the groups of a query: running totals, shares, ranks, differences.
WINDOWS = [
    "SELECT DATE_TRUNC('month', o_day) AS m, SUM(COUNT(*)) OVER (ORDER BY DATE_TRUNC('month', o_day) ASC ROWS UNBOUNDED PRECEDING) AS \"count\" FROM {o} GROUP BY 1 ORDER BY 1",
    "SELECT o_status, COUNT(*) AS n, COUNT(*) * 100.0 / SUM(COUNT(*)) OVER () AS share FROM {o} GROUP BY o_status HAVING COUNT(*) > 150",
    "SELECT o_status, o_channel, rank() OVER (PARTITION BY o_channel ORDER BY sum(o_amount) DESC) AS r FROM {o} WHERE o_amount < 90 GROUP BY 1, 2",
    "SELECT o_status, count(*) - lag(count(*)) OVER (ORDER BY o_status) AS more FROM {o} GROUP BY o_status ORDER BY o_status DESC LIMIT 2",
    "SELECT o_day + 1 AS d, sum(sum(o_amount)) OVER w, count(*) OVER w FROM {o} GROUP BY o_day WINDOW w AS (ORDER BY o_day RANGE BETWEEN '3 days' PRECEDING AND CURRENT ROW)",
    "SELECT row_number() OVER (ORDER BY count(DISTINCT o_note) DESC, o_status), o_status FROM {o} GROUP BY o_status",
    "SELECT DISTINCT max(count(*)) OVER (PARTITION BY o_status) AS n FROM {o} GROUP BY o_status, o_channel ORDER BY 1",
    "SELECT sum(count(*)) OVER (), avg(o_amount) AS a FROM {o}",
    "SELECT s, x FROM (SELECT upper(o_status) AS s, first_value(o_status) OVER (ORDER BY count(*) DESC, o_status) AS x, count(*) FROM {o} GROUP BY o_status) AS t WHERE s <> 'BACK'",
    "WITH o AS (SELECT o_status, o_amount FROM {o}) SELECT * FROM (SELECT o_status, ntile(2) OVER (ORDER BY sum(o_amount)) FROM o GROUP BY 1) AS t",
    "SELECT c_country, sum(sum(o_amount)) OVER (ORDER BY c_country) FROM {o} JOIN {c} ON c_id = o_customer GROUP BY c_country",
    "SELECT o_status, sum(count(*)) OVER (ORDER BY o_status) FROM {o} JOIN (SELECT o_status AS s FROM {o} GROUP BY 1 ORDER BY count(*) DESC LIMIT 2) AS top ON s = o_status GROUP BY 1",
    "SELECT g, (SELECT max(r) FROM (SELECT o_status, rank() OVER (ORDER BY count(*) + g) AS r FROM {o} GROUP BY 1) AS t) FROM generate_series(1, 2) AS g",
]  # fmt: skip
REFUSED = [
    ('SELECT o_at AS "time", o_amount FROM {o}', "PD010"),
    ('SELECT SUBSTRING("o_note", 1, 1234) AS "substring1" FROM {o} LIMIT 10000', "PD010"),
    ("SELECT *, row_number() OVER () FROM {o}", "PD010"),
    ("SELECT o_status, sum(o_amount) OVER () FROM {o} GROUP BY o_status", "42803"),
    ("SELECT o_status, sum(count(*)) OVER () FROM {o} GROUP BY ROLLUP (o_status)", "PD011"),
    ("SELECT o_status, string_agg(o_note, ','), rank() OVER (ORDER BY count(*)) FROM {o} GROUP BY o_status", "PD011"),
]  # fmt: skip


def _sorted(rows: list[Any]) -> list[list[object]]:
    return sorted(plain(rows), key=str)


@pytest.mark.parametrize("statement", [*GRAFANA, *METABASE, *POWER_BI, *WINDOWS])
def test_a_view_is_answered_as_the_relation(views: Any, silent: Any, statement: str) -> None:
    asked = silent.execute(statement.format(o='dpv."Orders"', c="dpv.customer"))
    truth = silent.execute(statement.format(o='public."Orders"', c="public.customer"))
    assert [(c.name, c.type_code) for c in asked.description] == [
        # an enum is shown as text
        (c.name, 25 if c.name == "o_channel" else c.type_code) for c in truth.description
    ]  # fmt: skip
    known = truth.fetchall()
    assert _sorted(asked.fetchall()) == _sorted(known)
    assert known or "HAVING" in statement


def test_windows_are_one_question_with_what_they_look_at(views: Any) -> None:
    """One answer, whatever is put around it."""
    spent = "select sum(epsilon) from dp.ledger"
    with views.connect("alice") as alice:
        alice.execute("set client_min_messages = error; set dp.epsilon = 0.5")
        counts = 'select o_status, count(*) from dpv."Orders" group by o_status order by o_status'
        known = dict(alice.execute(counts).fetchall())
        before = alice.execute(spent).fetchone()
        shares = 'select o_status, count(*) / sum(count(*)) over () from dpv."Orders" group by 1'
        for status, share in alice.execute(shares).fetchall():
            assert abs(float(share) - known[status] / sum(known.values())) < 1e-9
        assert alice.execute(spent).fetchone() == before


@pytest.mark.parametrize(("statement", "state"), REFUSED)
def test_what_is_refused_is_free(views: Any, statement: str, state: str) -> None:
    before = views.sql("select count(*) from dp.ledger")
    with views.connect("alice") as alice:
        assert asking.refused(alice, statement.format(o='dpv."Orders"')).sqlstate == state
    assert views.sql("select count(*) from dp.ledger") == before


def test_a_view_with_windows_over_answers_is_stored_and_asks(views: Any) -> None:
    with views.connect("alice") as alice:
        alice.execute("set client_min_messages = error; set dp.epsilon = 100")
        alice.execute(
            'create view public.shares as select o_status, count(*) * 1.0 / sum(count(*)) over () as s from dpv."Orders" group by 1'
        )
        found = dict(alice.execute("select * from public.shares").fetchall())
        assert set(found) == {"open", "sent", "back"}
        assert abs(float(sum(found.values())) - 1) < 1e-9
        (text,) = alice.execute("select pg_get_viewdef('public.shares'::regclass)").fetchone()
        assert "OVER" in text.partition("dp.run")[0]
        alice.execute(
            'prepare p (numeric) as select o_status, sum(count(*)) over (order by o_status) from dpv."Orders" where o_amount < $1 group by 1 limit 2'
        )
        assert len(alice.execute("execute p (50)").fetchall()) == 2
        alice.execute("drop view public.shares")


KEYS = [
    "o_status",
    "o_channel::text",
    "date_trunc('month', o_day)",
    "case when o_amount > 50 then 'large' else 'small' end",
]
AGGREGATES = [
    "count(*)",
    "sum(o_amount)",
    "count(o_id) filter (where o_amount < 30)",
    "avg(o_amount)",
]
OVER = ["sum({a}) over (partition by {k})", "rank() over (order by {a} desc, {k})", "{a} / nullif(sum({a}) over (), 0)", "{a}"]  # fmt: skip
WHERE = ["o_amount < 80", "o_id % 5 < 3", "n > 20", "o_status <> 'back'", "n > o_amount"]


def written(seed: int) -> str:
    """A grouped query, perhaps joined with the largest groups of another, perhaps looked at by windows."""
    pick = random.Random(seed)
    keys = pick.sample(KEYS, pick.choice([1, 2, 2, 3]))
    shown = [
        pick.choice(OVER).format(a=pick.choice(AGGREGATES), k=pick.choice(keys))
        for _ in range(pick.choice([1, 2, 3]))
    ]
    conditions = [pick.choice(WHERE[:2])] if pick.random() < 0.5 else []
    source = "{o} as o"
    if pick.random() < 0.7:
        chosen = pick.sample(
            keys if pick.random() < 0.8 else KEYS, pick.choice([1, min(2, len(keys))])
        )
        names = [f"k{i}" for i in range(len(chosen))]
        columns = ", ".join(f"{key} as {name}" for key, name in zip(chosen, names, strict=True))
        order = ", ".join(f"{i + 1}" for i in range(len(chosen)))
        top = (
            f"(select {columns}, count(*) as n from {{o}} group by {order}"
            f" order by count(*) desc, {order} limit {pick.choice([1, 2, 4])}) as top"
        )
        joined = [
            f"{key} {pick.choice(['=', '=', '=', '=', '=', '<='])} {name}"
            for key, name in zip(chosen, names, strict=True)
        ][: None if pick.random() < 0.9 else 1]
        conditions += [pick.choice(WHERE)] if pick.random() < 0.5 else []
        if pick.random() < 0.6:
            source += f" join {top} on {' and '.join(joined)}"
        else:
            source += f", {top}"
            conditions += joined
    else:
        conditions = [c for c in conditions if not c.startswith("n ")]
    text = f"select {', '.join([*keys, *shown])} from {source}"
    text += f" where {' and '.join(conditions)}" if conditions else ""
    text += f" group by {', '.join(keys)}"
    return text + (" having count(*) > 15" if pick.random() < 0.3 else "")


@pytest.mark.parametrize("part", range(4))
def test_what_goes_around_changes_no_answer(silent: Any, part: int) -> None:
    """Random queries are answered as over the relation, or refused."""
    answered = 0
    for seed in range(part, 120, 4):
        statement = written(seed)
        text = statement.format(o='dpv."Orders"')
        if (state := asking.state(silent, text)) is not None:
            assert (state, "top" in statement) == ("PD011", True), (seed, statement)
            continue
        answered += 1
        found = silent.execute(text).fetchall()
        known = silent.execute(statement.format(o='public."Orders"')).fetchall()
        assert _sorted(found) == _sorted(known), (seed, statement)
    assert answered > 15


@pytest.mark.parametrize(
    "statement",
    [
        "select c_country, rank() over (order by count(*)) from dpv.customer group by c_country",
        "select c_country, count(*) from dpv.customer join (select c_country as c from dpv.customer group by 1 limit 1) as top"
        " on c = c_country group by c_country",
        "select o_status, count(*) from dpv.\"Orders\" join (select c_country as c from dpv.customer group by 1 limit 1) as top"
        " on c = o_status group by o_status",
    ],
)  # fmt: skip
def test_what_goes_around_needs_the_same_rights(views: Any, statement: str) -> None:
    again = "select dp.expose('customer', array['c_id', 'c_country']{})"
    before = views.sql("select count(*) from dp.ledger")
    with views.connect("bob") as bob:
        bob.execute("set client_min_messages = error")
        views.sql(again.format(", readers => array['alice']"), user="owner1")
        try:
            assert asking.state(bob, statement) == "42501"
            assert views.sql("select count(*) from dp.ledger") == before
        finally:
            views.sql(again.format(""), user="owner1")
        assert asking.state(bob, statement) is None
