"""What BI tools and libraries write, on exposed views and on the relations themselves: the same answers.

Noise is off, so nothing here depends on it.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from tests.server import asking
from tests.server.exposing import plain

pytestmark = pytest.mark.server

#: What each tool writes; "{o}" and "{c}" stand for orders and customers.
PLAIN = [
    'SELECT count(*) FROM {o}',
    'SELECT count(*), count(o_note), sum(o_amount), avg(o_amount) FROM {o}',
    "SELECT count(*) FROM {o} WHERE o_status IN ('open', 'sent') AND o_amount BETWEEN 10 AND 50.5",
    "SELECT count(*) FROM {o} WHERE o_status = ANY (ARRAY['open', 'sent']) AND NOT o_note LIKE '%4'",
    "SELECT count(DISTINCT o_status), count(DISTINCT o_note) FROM {o} WHERE o_day < '2024-02-01'",
    "SELECT o_status, count(*) FILTER (WHERE o_amount > 20) FROM {o} GROUP BY o_status",
    "SELECT variance(o_amount), stddev(o_amount), var_pop(o_amount), stddev_pop(o_amount) FROM {o}",
    'SELECT o_channel, count(*) FROM {o} AS o JOIN {c} AS c ON o.o_customer = c.c_id GROUP BY o_channel',
    'SELECT c_country, sum(o_amount) FROM {c}, {o} WHERE c_id = o_customer GROUP BY 1 HAVING count(*) > 5',
    'SELECT count(*) FROM {o} AS a JOIN {o} AS b USING (o_id) WHERE a.o_status = b.o_status',
    'SELECT count(*) FROM {o} NATURAL JOIN (SELECT c_id AS o_customer, c_country FROM {c}) AS c',
    'SELECT s, n FROM (SELECT o_status AS s, count(*) AS n FROM {o} GROUP BY 1) AS t (s, n) WHERE n > 3',
    'SELECT max(n), sum(n) FROM (SELECT o_day, count(*) AS n FROM {o} GROUP BY 1) AS t',
    'SELECT o_status, n, rank() OVER (ORDER BY n DESC, o_status) FROM (SELECT o_status, count(*) AS n FROM {o} GROUP BY 1) AS t',
    'SELECT (SELECT count(*) FROM {o}) AS o, (SELECT count(*) FROM {c}) AS c',
    'SELECT count(*) FROM {o} UNION ALL SELECT count(*) FROM {c}',
    'SELECT DISTINCT o_status, o_channel FROM {o}',
    'SELECT DISTINCT o_status AS s FROM {o} WHERE o_amount > 5 ORDER BY s DESC LIMIT 2',
    'SELECT count(*) FROM (TABLE {o}) AS t',
    'WITH RECURSIVE t AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM t WHERE x < 3), b AS (SELECT * FROM {o})'
    ' SELECT x, n FROM t, (SELECT count(*) AS n FROM b) AS z',
]  # fmt: skip
SUPERSET = [
    'SELECT o_status AS o_status, COUNT(*) AS "COUNT(*)" FROM {o} GROUP BY o_status ORDER BY "COUNT(*)" DESC LIMIT 10000',
    "SELECT DATE_TRUNC('month', o_at) AS __timestamp, SUM(o_amount) AS \"SUM(o_amount)\" FROM {o}"
    " WHERE o_at >= TO_TIMESTAMP('2024-01-15 00:00:00.000000', 'YYYY-MM-DD HH24:MI:SS.US')"
    " AND o_at < TO_TIMESTAMP('2024-03-15 00:00:00.000000', 'YYYY-MM-DD HH24:MI:SS.US')"
    " GROUP BY DATE_TRUNC('month', o_at) ORDER BY \"SUM(o_amount)\" DESC LIMIT 50000",
    "SELECT DATE_TRUNC('day', o_day) AS __timestamp, AVG(o_amount) AS a FROM {o} WHERE o_day >= TO_DATE('2024-02-01', 'YYYY-MM-DD')"
    " AND o_day < TO_DATE('2024-02-08', 'YYYY-MM-DD') GROUP BY DATE_TRUNC('day', o_day)",
    'SELECT o_status AS o_status, sum(o_amount) AS s FROM (SELECT o_status, o_amount, o_day\nFROM {o}\nWHERE o_amount > 1) AS virtual_table'
    ' GROUP BY o_status ORDER BY s DESC LIMIT 1000',
    'SELECT o_status AS o_status FROM {o} GROUP BY o_status ORDER BY o_status ASC LIMIT 1000',
    'SELECT COUNT(*) AS rowcount FROM (SELECT o_status AS o_status, COUNT(*) AS n FROM {o} GROUP BY o_status) AS rowcount_qry',
    'SELECT o_status AS s, sum(n) AS "SUM(n)" FROM (SELECT o_status, o_day, count(*) AS n FROM {o} GROUP BY o_status, o_day) AS virtual_table'
    ' GROUP BY o_status ORDER BY "SUM(n)" DESC LIMIT 100',
]  # fmt: skip
METABASE = [
    'SELECT CAST(DATE_TRUNC(\'month\', {o}."o_day") AS date) AS "o_day", COUNT(*) AS "count" FROM {o} WHERE ({o}."o_day" >= DATE \'2024-01-01\')'
    ' GROUP BY CAST(DATE_TRUNC(\'month\', {o}."o_day") AS date) ORDER BY CAST(DATE_TRUNC(\'month\', {o}."o_day") AS date) ASC',
    'SELECT "source"."o_month" AS "o_month", COUNT(*) AS "count" FROM (SELECT CAST(extract(month from {o}."o_day") AS integer) AS "o_month"'
    ' FROM {o}) AS "source" WHERE "source"."o_month" < 4 GROUP BY "source"."o_month" ORDER BY "source"."o_month" ASC',
    'SELECT SUM(CASE WHEN {o}."o_status" = \'open\' THEN 1 ELSE 0.0 END) / CAST(COUNT(*) AS DOUBLE PRECISION) AS "share" FROM {o}',
    'SELECT "Customer"."c_country" AS "Customer__c_country", SUM({o}."o_amount") AS "sum" FROM {o} INNER JOIN {c} AS "Customer"'
    ' ON {o}."o_customer" = "Customer"."c_id" GROUP BY "Customer"."c_country" ORDER BY "Customer"."c_country" ASC LIMIT 1048575',
]  # fmt: skip
TABLEAU = [
    'SELECT "Orders"."o_status" AS "o_status", SUM(1) AS "cnt:Orders:ok" FROM {o} "Orders" GROUP BY 1',
    'SELECT SUM(1) AS "COL" FROM {o} "Orders" HAVING (COUNT(1) > 0)',
    'SELECT CAST(DATE_TRUNC(\'MONTH\', CAST("Orders"."o_day" AS TIMESTAMP)) AS DATE) AS "tmn:o_day:ok", SUM("Orders"."o_amount") AS "sum:o_amount:ok"'
    ' FROM {o} "Orders" GROUP BY 1',
    'SELECT CAST(EXTRACT(YEAR FROM "Orders"."o_day") AS BIGINT) AS "yr:o_day:ok", COUNT(DISTINCT "Orders"."o_status") AS "ctd" FROM {o} "Orders"'
    ' WHERE (("Orders"."o_day" >= (DATE \'2024-01-05\')) AND ("Orders"."o_day" <= (DATE \'2024-03-01\'))) GROUP BY 1',
    'SELECT CAST("Orders"."o_status" AS TEXT) AS "o_status" FROM {o} "Orders" GROUP BY 1 ORDER BY 1 ASC',
]  # fmt: skip
POWER_BI = [
    'select "_"."o_status" as "o_status", "_"."a0" as "a0" from ( select "rows"."o_status" as "o_status", count(1) as "a0"'
    ' from {o} "rows" group by "o_status" ) "_" where not "_"."a0" is null order by "_"."o_status" limit 1000001',
    'select count(distinct("rows"."o_note")) + max(case when "rows"."o_note" is null then 1 else 0 end) as "a0"'
    ' from ( select "$Table"."o_id" as "o_id", "$Table"."o_note" as "o_note" from {o} "$Table" ) "rows"',
    'select count(distinct("rows"."o_status")) + max(case when "rows"."o_status" is null then 1 else 0 end) as "a0"'
    ' from ( select "$Table"."o_id" as "o_id", "$Table"."o_status" as "o_status" from {o} "$Table" ) "rows"',
    'select sum(cast("rows"."o_amount" as decimal)) as "a0" from {o} "rows"',
]  # fmt: skip
DBT = [
    "WITH source AS (SELECT * FROM {o}), renamed AS (SELECT o_id AS id, o_status AS status, o_amount AS amount FROM source),"
    " final AS (SELECT status, count(*) AS n, sum(amount) AS total FROM renamed GROUP BY 1) SELECT * FROM final",
    "WITH o (a, b) AS (SELECT o_customer, o_amount FROM {o}), c AS (SELECT * FROM {c} WHERE c_id < 50),"
    " j AS (SELECT c_country AS country, b AS amount FROM o JOIN c ON a = c_id), s AS (SELECT country, sum(amount) AS x FROM j GROUP BY 1),"
    " n AS (SELECT country, count(*) AS y FROM j GROUP BY 1) SELECT s.country, x, y FROM s JOIN n USING (country)",
]  # fmt: skip


@pytest.mark.parametrize("statement", [*PLAIN, *SUPERSET, *METABASE, *TABLEAU, *POWER_BI, *DBT])
def test_a_view_is_answered_as_the_relation(silent: Any, statement: str) -> None:
    asked = silent.execute(statement.format(o='dpv."Orders"', c="dpv.customer"))
    truth = silent.execute(statement.format(o='public."Orders"', c="public.customer"))
    assert [(c.name, c.type_code) for c in asked.description] == [
        # an enum is shown as text
        (c.name, 25 if c.name == "o_channel" else c.type_code) for c in truth.description
    ]  # fmt: skip
    found, known = asked.fetchall(), truth.fetchall()
    if "ORDER BY" not in statement:
        found, known = sorted(found, key=str), sorted(known, key=str)
    assert known
    assert plain(found) == plain(known)


@pytest.mark.parametrize(
    ("aggregate", "off"),
    [
        ("min(o_amount)", 6),
        ("max(o_amount)", 6),
        ("percentile_cont(0.5) WITHIN GROUP (ORDER BY o_amount)", 2),
        ("percentile_disc(0.25) WITHIN GROUP (ORDER BY o_amount)", 2),
        ("min(o_day) - date '2024-01-01'", 3),
    ],
)
def test_values_by_rank_are_near(silent: Any, aggregate: str, off: float) -> None:
    text = f"SELECT {aggregate} FROM {{}}"
    ((found,),) = silent.execute(text.format('dpv."Orders"')).fetchall()
    ((known,),) = silent.execute(text.format('"Orders"')).fetchall()
    assert abs(float(found) - float(known)) <= off


def test_a_view_and_its_relation_share_one_answer(views: Any) -> None:
    spent = "select coalesce(sum(epsilon), 0) from dp.ledger"
    with views.connect("alice") as alice:
        alice.execute("set dp.epsilon = 0.5")
        before = alice.execute(spent).fetchone()[0]
        asked = {
            alice.execute(statement).fetchone()
            for statement in (
                "SELECT count(*) FROM dpv.customer WHERE c_id < 40",
                'SELECT COUNT(*) AS "n" FROM (SELECT * FROM dpv."customer") AS "v" WHERE "v"."c_id" < 40 LIMIT 1000',
                "WITH v AS (SELECT c_id AS i FROM dpv.customer) SELECT count(*) FROM v WHERE 40 > i",
                "SELECT dp_count(*) FROM customer WHERE c_id < 40",
                "SELECT dp_count(*) FROM dpv.customer WHERE c_id < 40",
            )
        }
        assert len(asked) == 1
        assert alice.execute(spent).fetchone()[0] == before + Decimal("0.5")


@pytest.mark.parametrize(
    "statement",
    [
        'SELECT * FROM dpv."Orders" LIMIT 0',
        'SELECT * FROM (SELECT * FROM dpv."Orders") "Custom SQL Query" LIMIT 0',
        'SELECT "o_id", o_status FROM dpv."Orders" WHERE 1 <> 1',
        'SELECT * FROM dpv."Orders" AS probe WHERE 1 = 0 AND o_status = \'open\'',
        "SELECT o_status, count(*) AS n, sum(o_amount), avg(o_id) FROM dpv.\"Orders\" WHERE false GROUP BY 1",
        'SELECT o_status, count(*) AS n FROM dpv."Orders" GROUP BY 1 LIMIT 0',
        'SELECT * FROM (SELECT o_status, count(*) AS n FROM dpv."Orders" GROUP BY 1) AS t WHERE 1 = 0',
        'SELECT * FROM (WITH x AS (SELECT * FROM dpv."Orders") SELECT o_status, sum(o_amount) FROM x GROUP BY 1) AS __dbt_sbq WHERE false LIMIT 0',
    ],
)  # fmt: skip
def test_probes_cost_nothing_and_tell_columns(views: Any, silent: Any, statement: str) -> None:
    spent = "select count(*) from dp.ledger"
    before = views.sql(spent)
    with views.connect("alice") as alice:
        found = alice.execute(statement)
        assert found.fetchall() == []
        truth = silent.execute(statement.replace("dpv.", "public."))
        assert [(c.name, 25 if c.name == "o_channel" else c.type_code) for c in truth.description
                if c.name not in ("o_secret",)] == [(c.name, c.type_code) for c in found.description]  # fmt: skip
        alice.execute(f"EXPLAIN {statement}")
    assert views.sql(spent) == before


@pytest.mark.parametrize(
    ("statement", "state", "told"),
    [
        ('SELECT * FROM dpv."Orders" LIMIT 100', "PD010", 'Numbers: SELECT count(*) FROM dpv."Orders".'),
        ("SELECT o_id FROM dpv.\"Orders\" WHERE o_status = 'open' AND o_id < 5", "PD010", "CALL dp.synthesize("),
        ("SELECT EXISTS (SELECT FROM dpv.\"Orders\" WHERE o_id = 3)", "PD010", "CALL dp.synthesize("),
        ('SELECT count(*) OVER () FROM dpv."Orders"', "PD010", None),
        ('SELECT DISTINCT ON (o_status) o_id FROM dpv."Orders"', "PD010", None),
        ('SELECT array_agg(o_id) FROM dpv."Orders"', "PD011", "Use count, sum"),
        ('SELECT string_agg(o_note, \',\') FROM dpv."Orders"', "PD011", "Use count, sum"),
        ('SELECT min(o_note) FROM dpv."Orders"', "PD011", "Use count, sum"),
        ('SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY o_id DESC) FROM dpv."Orders"', "PD011", None),
        ('SELECT sum(o_id) FROM dpv."Orders"', "PD011", "dp.set_domain("),
        ('SELECT count(*) FROM dpv.customer LEFT JOIN dpv."Orders" ON c_id = o_customer', "PD011", "or count matches only: count(b.a_id)"),
        ('SELECT count(*) FROM (SELECT * FROM dpv."Orders" LIMIT 5) AS t', "PD011", None),
        ('SELECT count(*) FROM dpv.customer WHERE c_id IN (SELECT o_customer FROM dpv."Orders")', "PD011", "SELECT count(DISTINCT a.id) FROM a"),
        ('SELECT x, (SELECT count(*) FROM dpv.customer WHERE c_id > x) FROM generate_series(1, 2) AS x', "PD011", None),
        ('SELECT count(*) FROM (SELECT o_id FROM dpv."Orders" UNION ALL SELECT c_id FROM dpv.customer) AS t', "PD011", None),
        ('DELETE FROM dpv."Orders"', "55000", None),
    ],
)  # fmt: skip
def test_what_is_refused_is_free_and_says_why(
    views: Any, statement: str, state: str, told: str | None
) -> None:
    before = views.sql("select count(*) from dp.ledger")
    with views.connect("alice") as alice:
        error = asking.refused(alice, statement)
    assert error.sqlstate == state, error
    assert told is None or told in str(error.diag.message_hint)
    assert views.sql("select count(*) from dp.ledger") == before


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT count(*) FROM (SELECT * FROM dpv.\"Orders\" WHERE false LIMIT 0) AS t",
        "WITH s AS (SELECT * FROM dpv.\"Orders\" LIMIT 0), r AS (SELECT o_status AS x FROM s) SELECT count(x) FROM r",
        "SELECT count(*) FROM empty_orders",
    ],
)  # fmt: skip
def test_nothing_is_counted_for_nothing(views: Any, statement: str) -> None:
    """As dbt runs models with --empty."""
    views.sql('create or replace view public.empty_orders as select o_id from dpv."Orders" where false limit 0', user="alice")  # fmt: skip
    before = views.sql("select count(*) from dp.ledger")
    with views.connect("alice") as alice:
        assert alice.execute(statement).fetchone() == (0,)
    assert views.sql("select count(*) from dp.ledger") == before


def test_the_refusal_of_rows_names_a_synthetic_copy(views: Any) -> None:
    name = views.name
    views.sql(f"grant create on database {name} to alice")
    with views.connect("alice") as alice:
        alice.execute("set client_min_messages = error")
        alice.execute(
            "call dp.synthesize('syn', array['customer']::regclass[], 5, 1e-7, placeholders => true)"
        )
        error = asking.refused(alice, "SELECT * FROM dpv.customer LIMIT 10")
        assert error.sqlstate == "PD010"
        assert error.diag.message_hint == (
            "Numbers: SELECT count(*) FROM dpv.customer. "
            "Synthetic rows, which cost nothing: SELECT * FROM dpv.syn_customer."
        )
    # the view goes on answering questions
    error = asking.refused(views.connect("owner1"), "select dp.show_synthetic('customer', 'syn')")
    assert error.sqlstate == "PD040"
    assert "dp.unexpose" in str(error.diag.message_hint)


def test_explain_shows_no_data_and_asks_nothing(views: Any) -> None:
    before = views.sql("select count(*) from dp.ledger")
    with views.connect("alice") as alice:
        plans = [
            alice.execute(f'EXPLAIN {form} SELECT o_status, count(*) FROM {x} GROUP BY 1').fetchall()
            for form in ("", "(format text, costs on)")
            for x in ('dpv."Orders"', "(SELECT * FROM dpv.\"Orders\" WHERE o_amount > 90) AS t")
        ]  # fmt: skip
    # one estimate, whatever is asked
    assert len({str(plan) for plan in plans}) == 1
    assert "Function Scan on run" in str(plans[0])
    assert views.sql("select count(*) from dp.ledger") == before


def test_prepared_statements_cursors_and_parameters(views: Any, silent: Any) -> None:
    known = silent.execute("select count(*) from \"Orders\" where o_status = 'open'").fetchone()
    text = 'select count(*) from dpv."Orders" where o_status = %s and o_amount < %s'
    assert silent.execute(text, ("open", 1000), prepare=True).fetchone() == known
    assert silent.execute(text, ("open", Decimal("1000.5")), prepare=True).fetchone() == known
    silent.execute('prepare p (text) as select count(*) from dpv."Orders" where o_status = $1')
    assert silent.execute("execute p('open')").fetchone() == known
    with silent.transaction():
        silent.execute(
            'declare "SQL_CUR1" cursor for select o_status, count(*) from dpv."Orders" group by 1'
        )
        assert len(silent.execute('fetch 10 from "SQL_CUR1"').fetchall()) == 3
    silent.execute("""do $$ declare n bigint; s text := 'open'; begin
        select count(*) into n from dpv."Orders" where o_status = s;
        perform set_config('test.n', n::text, false); end $$""")
    assert silent.execute("select current_setting('test.n')::bigint").fetchone() == known


def test_dbt_builds_models_of_views(views: Any, silent: Any) -> None:
    """Tables of answers; views that only rename and filter pass through; views of answers ask."""
    with views.connect("alice") as alice:
        alice.execute("set dp.epsilon = 100; set client_min_messages = error")
        alice.execute('create view public.stg_orders__dbt_tmp as (with source as (select * from dpv."Orders")'
                      " select o_id as id, o_status as status, o_amount as amount from source where o_amount < 50)")  # fmt: skip
        alice.execute("alter view public.stg_orders__dbt_tmp rename to stg_orders")
        alice.execute("alter view public.stg_orders rename column status to state")
        alice.execute(
            "create table public.mart__dbt_tmp as (select state, count(*) as n from public.stg_orders group by 1)"
        )
        alice.execute(
            "create view public.fresh as select state, count(*) as n from stg_orders group by 1"
        )
        found = alice.execute("select state, n from mart__dbt_tmp order by 1").fetchall()
        assert found == alice.execute("select state, n from fresh order by 1").fetchall()
        known = 'select o_status, count(*) from "Orders" where o_amount < 50 group by 1 order by 1'
        known = silent.execute(known).fetchall()
        # noise of scale 1/100 is 1 or more with a probability below exp(-99)
        assert found == known
        assert asking.state(alice, "select * from stg_orders") == "PD010"
        assert alice.execute("select * from stg_orders limit 0").fetchall() == []
        # who reads such a view needs the privilege for it, and a budget of his own
        assert asking.state(views.connect("bob"), "select count(*) from stg_orders") == "42501"
        alice.execute("grant select on stg_orders, fresh to bob")
        bob = views.connect("bob")
        bob.execute("set dp.epsilon = 100")
        assert bob.execute("select count(*) from stg_orders").fetchone() == (
            sum(n for _, n in known),
        )
        alice.execute("drop view fresh; drop view stg_orders")
