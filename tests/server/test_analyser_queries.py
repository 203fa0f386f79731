"""The analysed join query counts what PostgreSQL counts; its canonical text is faithful."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from dpsql.errors import DpsqlError
from dpsql.model import GroupDomain, JoinQuery, Question
from dpsql.query.ir import render
from dpsql.query.pipeline import analyse
from dpsql.relation import Domain
from tests.server.analyser_catalog import LiveCatalog

SCHEMA = """
create type public.mood as enum ('sad', 'ok', 'happy');
create table public.p (id int primary key, x bigint, n numeric, label varchar(8), day date,
                       m public.mood, ok boolean, f float8, code char(3));
create table public.c (id bigint primary key, p_id int references p (id), x int, n numeric(6,2),
                       label text, day timestamp, m public.mood not null);
create table public.pub (x int not null, label text, kind int);
create view public.v as select c.id, p.x as px, c.label from p join c on c.p_id = p.id
  where p.ok is not false;
"""
DATA = """
insert into p select i, nullif(i % 4, 0), (array[1.0, 1.00, 2.5, null])[i % 4 + 1],
  (array['a', 'b', null])[i % 3 + 1], date '2000-01-30' + i % 3,
  (array['sad', 'ok']::mood[])[i % 2 + 1],
  (array[true, false, null])[i % 3 + 1], (array[0, -0.0::float8, 1.5, 'NaN'])[i % 4 + 1],
  (array['a', 'ab', null])[i % 3 + 1] from generate_series(1, 12) i;
insert into c select i, nullif(i % 14, 13) % 12 + 1, i % 3, (i % 5) / 2.0,
  (array['a', 'b', 'c', null])[i % 4 + 1],
  timestamp '2000-01-31 10:00' + i % 2 * interval '1 day', 'ok' from generate_series(1, 25) i;
insert into c select i, null, 1, 1.5, 'a', null, 'sad' from generate_series(30, 32) i;
insert into pub select i % 4, (array['a', 'b', null])[i % 3 + 1], i % 2
  from generate_series(1, 9) i;
"""
DECLARED = {"public.p": True, "public.c": True, "public.pub": False}

QUERIES = [
    "select dp_count(*) from p",
    "select dp_count(x), dp_count(*), dp_count(id), dp_count(n + x) from p where ok",
    "select dp_count(*) from p, c where p.id = c.p_id",
    "select dp_count(*) from p join c on p.id = c.p_id and c.x = p.x where p.x = 1",
    "select dp_count(*) from c join pub using (x, label) join p on p.id = c.p_id",
    "select dp_count(*) from c a, c b where a.x = b.x and a.id < b.id",
    "select dp_count(*) from c a, c b, p where a.x = b.x and b.x = p.x and a.label = p.label",
    "select dp_count(*) from p, c where p.n = c.n",
    "select dp_count(*) from p, c where p.n = c.x and p.x = c.x",
    "select dp_count(*) from p, c where p.code = c.label",
    "select dp_count(*) from p, c where p.day = c.day",
    "select dp_count(*) from p, c where p.day < c.day and c.n > p.n and p.f < c.x",
    "select dp_count(*) from p, c where p.x + c.x > 2 or p.ok",
    "select dp_count(*) from p a, p b where a.f = b.f",
    "select dp_count(*) from p where x = x and label like 'a%' and day + 1 > '2000-01-31'",
    "select dp_count(*) from p where not (x in (1, 2) or label is null) and x not in (3, 4)",
    "select dp_count(*) from p where false",
    "select dp_count(*) from p, c where null",
    "select dp_count(*) from v where px > 1",
    "select dp_count(*) from v a join v b on a.id = b.px",
    "with q as (select x + 1 as y, label from p where ok), u as (select 1 as z from c)"
    " select dp_count(*) from q a, q b where a.y = b.y",
    "select dp_count(*) from (select id, x as k from (select * from p where x > 1) i) o, c"
    " where o.k = c.x",
    "select dp_count(*) from (p join c on p.id = c.p_id) j where j.p_id is not null and j.ok",
    "select dp_count(*) from p natural join pub",
    "select m, dp_count(*) from p group by m",
    "select n, dp_count(*) from p group by n",
    "select f, dp_count(*) from p group by f",
    "select code, dp_count(*) from p group by code",
    "select p.label, c.m, dp_count(*) from p join c on c.p_id = p.id group by 1, 2",
    "select date_trunc('month', p.day), dp_count(*) from p, c where p.id = c.p_id group by 1",
    "select x, dp_count(*), dp_count(label) from c group by x having dp_count(*) > 1",
    "select pub.x, pub.label, dp_count(*) from pub join c on c.x = pub.x where kind = 1"
    " group by 1, 2",
    "select case when x > 2 then 'big' when x > 1 then 'mid' end, dp_count(*) from p group by 1",
    "select c.x, dp_count(*) from c join p on c.x = p.x join pub on pub.x = c.x group by 1",
    "select width_bucket(n, 0, 3, 3), dp_count(*) from c group by 1",
    "select extract(month from day), ok, dp_count(*) from p group by 1, 2",
]  # fmt: skip


@pytest.fixture(scope="module")
def catalog(server: Any) -> Iterator[LiveCatalog]:
    database = server.create_database()
    connection = database.connect()
    connection.execute("set search_path = public")
    connection.execute(SCHEMA)
    connection.execute(DATA)
    yield LiveCatalog(connection, DECLARED, views=("public.v",))
    server.drop_database(database)


def plain_sql(query: JoinQuery) -> str:
    """Write the join query naively: one FROM list, every condition in WHERE."""
    where = ["true"]
    first: dict[int, str] = {}
    for o in query.occurrences:
        where += map(render, o.filters)
        for use in o.uses:
            value = f"CAST({render(use.expression)} AS {query.attributes[use.attribute].type_name})"
            if use.attribute in first:
                where.append(f"{first[use.attribute]} = {value}")
            first.setdefault(use.attribute, value)
    for p in query.predicates:
        text = render(p.expression)
        for number in sorted(p.attributes, reverse=True):
            text = text.replace(f"a{number}", first[number])
        where.append(text)
    sources = ", ".join(f"{o.relation.sql} AS {o.alias}" for o in query.occurrences)
    keys = ", ".join(first[g] for g in query.groups)
    shown = ", ".join(f"CAST({first[g]} AS text)" for g in query.groups)
    sql = (
        f"select {shown + ', ' if shown else ''}count(*) from {sources} where {' and '.join(where)}"
    )
    return f"{sql} group by {keys}" if keys else sql


def answer(catalog: LiveCatalog, question: Question) -> list[dict[tuple[Any, ...], int]]:
    catalog.connection.execute("set search_path = pg_catalog")
    found = []
    for query in question.aggregates:
        rows = catalog.connection.execute(plain_sql(query)).fetchall()  # type: ignore[arg-type]
        found.append({row[:-1]: row[-1] for row in rows})
    return found


def truth(catalog: LiveCatalog, question: Question, text: str) -> list[tuple[Any, ...]]:
    catalog.connection.execute("set search_path = public")
    plain = text.replace("dp_count", "count")
    return catalog.connection.execute(plain).fetchall()  # type: ignore[arg-type]


def finish(
    catalog: LiveCatalog, question: Question, counts: list[dict[tuple[Any, ...], int]]
) -> list[tuple[Any, ...]]:
    """Post-process exact counts of the groups that exist."""
    groups = sorted(set().union(*counts), key=repr) if question.group_keys else [()]
    columns = [f"g{i}" for i in range(len(question.group_keys))]
    columns += [f"a{j}" for j in range(len(counts))]
    rows = []
    for group in groups:
        if not any(c.get(group) for c in counts) and question.group_keys:
            continue
        values = [
            f"{catalog.connection.execute('select quote_nullable(%s::text)', (v,)).fetchone()[0]}"  # type: ignore[index]
            f"::{k.type_name}"
            for v, k in zip(group, question.group_keys, strict=True)
        ]
        rows.append(f"({', '.join(values + [f'{c.get(group, 0)}::bigint' for c in counts])})")
    if not rows:
        return []
    sql = f"with noisy ({', '.join(columns)}) as (values {', '.join(rows)}) {question.post_sql}"
    catalog.connection.execute("set search_path = pg_catalog")
    return catalog.connection.execute(sql).fetchall()  # type: ignore[arg-type]


def comparable(rows: list[tuple[Any, ...]]) -> list[str]:
    return sorted(repr(tuple(str(v).strip() if isinstance(v, str) else v for v in r)) for r in rows)


@pytest.mark.parametrize("use_keys", [True, False])
@pytest.mark.parametrize("text", QUERIES)
def test_counts_are_postgresqls(catalog: LiveCatalog, text: str, use_keys: bool) -> None:
    question = analyse(catalog.analyze(text), catalog, use_keys=use_keys)
    counts = answer(catalog, question)
    got = finish(catalog, question, counts)
    expected = truth(catalog, question, text)
    if " f," not in text and " n," not in text:
        assert comparable(got) == comparable(expected)
    assert sorted(r[-1] for r in got) == sorted(r[-1] for r in expected)


def reported(catalog: LiveCatalog, domain: GroupDomain) -> set[tuple[Any, ...]]:
    """List a domain the naive way."""
    if domain.query is not None:
        return {row[:-1] for row in catalog.connection.execute(plain_sql(domain.query))}  # type: ignore[arg-type]
    return set(catalog.connection.execute(domain.sql).fetchall())  # type: ignore[arg-type]


@pytest.mark.parametrize("text", [q for q in QUERIES if "group by" in q])
def test_a_public_domain_covers_every_group(catalog: LiveCatalog, text: str) -> None:
    question = analyse(catalog.analyze(text), catalog)
    if question.group_domains is None:
        hint = str(question.undeclared_domain_hint)
        assert any(way in hint for way in ("dp.set_domain", "width_bucket", "table of days"))
        return
    counts = answer(catalog, question)
    for domain in question.group_domains:
        listed = reported(catalog, domain)
        for group in counts[0]:
            assert tuple(group[p] for p in domain.positions) in listed


def test_rows_outside_a_declared_domain_are_dropped(catalog: LiveCatalog) -> None:
    domains = {"public.c": (Domain("label", ("b", "a"), False), Domain("x", ("0", "1"), True))}
    catalog = LiveCatalog(catalog.connection, DECLARED, domains=domains)
    question = analyse(
        catalog.analyze(
            "select upper(label), x, dp_count(*) from c where label <> 'b' group by 1, 2"
        ),
        catalog,
    )
    assert question.group_domains is not None
    rows = [reported(catalog, d) for d in question.group_domains]
    assert sorted(rows[0]) == [("A",)]
    assert sorted(rows[1], key=repr) == [("0",), ("1",), (None,)]
    assert set(answer(catalog, question)[0]) == {("A", "0"), ("A", "1")}


EQUIVALENT = [
    (
        "select dp_count(*) from p a, c b where a.id = b.p_id and b.x between 1 and 2",
        "select dp_count(*) as n from c as q join p as w on (q.p_id = w.id)"
        " where q.x <= 2 and 1 <= q.x",
    ),
    (
        "select dp_count(*) from c a, c b, pub where a.x = b.x and b.x = pub.x and a.label = 'a'",
        "select dp_count(*) from c b, pub, c a where a.x = pub.x and 'a' = b.label and a.x = b.x",
    ),
    (
        "select dp_count(*) from p where x in (1, 2, 2) and (ok or label = 'a')",
        "select dp_count(*) * 2 from p q where (q.label = 'a' or q.ok) and q.x in (2, 1)",
    ),
    (
        "select dp_count(*) from c a, c b where a.id < b.id and a.n > b.n",
        "select dp_count(*) from c x, c y where y.n < x.n and y.id > x.id",
    ),
]


@pytest.mark.parametrize(("one", "other"), EQUIVALENT)
def test_equivalent_texts_share_the_canonical_text(
    catalog: LiveCatalog, one: str, other: str
) -> None:
    first, second = (analyse(catalog.analyze(t), catalog) for t in (one, other))
    assert first.canonical == second.canonical


def random_query(random_: random.Random) -> str:
    columns = {"p": ("id", "x", "label"), "c": ("id", "p_id", "x", "label"), "pub": ("x", "label")}
    names = [random_.choice(list(columns)) for _ in range(random_.randint(1, 3))]
    refs = [f"t{i}.{c}" for i, n in enumerate(names) for c in columns[n]]
    numbers = [r for r in refs if "label" not in r]
    texts = [r for r in refs if "label" in r]
    makers = [
        lambda: f"{random_.choice(numbers)} = {random_.choice(numbers)}",
        lambda: (
            f"{random_.choice(numbers)} {random_.choice(['<', '<=', '>', '<>'])}"
            f" {random_.choice(numbers)}"
        ),
        lambda: f"{random_.choice(numbers)} = {random_.randint(0, 3)}",
        lambda: f"{random_.choice(texts)} = {random_.choice([*texts, chr(39) + 'a' + chr(39)])}",
        lambda: f"({random_.choice(numbers)} > 1 or {random_.choice(texts)} is null)",
        lambda: f"{random_.choice(numbers)} + {random_.choice(numbers)} = 3",
        lambda: f"not {random_.choice(numbers)} in (1, {random_.randint(2, 4)})",
    ]
    where = [random_.choice(makers)() for _ in range(random_.randint(0, 4))]
    sources = ", ".join(f"{n} t{i}" for i, n in enumerate(names))
    sql = f"select dp_count(*) from {sources}"
    return sql + (" where " + " and ".join(where) if where else "")


def test_random_queries_count_right_and_one_canonical_text_has_one_answer(
    catalog: LiveCatalog,
) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")  # noqa: T201
    random_ = random.Random(seed)
    answers: dict[str, int] = {}
    for _ in range(250):
        text = random_query(random_)
        question = analyse(catalog.analyze(text), catalog)
        (count,) = answer(catalog, question)[0].values()
        assert count == truth(catalog, question, text)[0][0], text
        assert answers.setdefault(question.canonical, count) == count, text


REFUSED = [
    ("select dp_count(*) from p left join c on true", "outer joins", "LEFT JOIN"),
    ("select dp_count(*) from p union select 1", "UNION", "UNION"),
    ("select dp_count(*) from (select distinct x from p) q", "sub-query may not", None),
    ("select dp_count(*) from (select x from p limit 1) q", "sub-query may not", None),
    ("select dp_count(*) from p, lateral (select p.x) q", "LATERAL", "LATERAL"),
    ("select dp_count(*) from p where exists (select 1 from c)", "EXISTS is", "EXISTS"),
    ("select dp_count(*) from p where x in (select x from c)", "IN (sub-query) is", "IN"),
    ("select dp_count(*) from p, (values (1)) w(z)", "VALUES", "( VALUES"),
    ("select dp_count(*) from p, generate_series(1, 2) g", "functions in FROM", None),
    ("select dp_count(*) from p tablesample system (5)", "TABLESAMPLE", "TABLESAMPLE"),
    ("select dp_count(*) over () from p", "window", "OVER"),
    ("select dp_sum(distinct x) from p", "DISTINCT", None),
    ("select dp_count(*), sum(x) from p", "aggregates other than the private ones", None),
    ("select x, dp_count(*) from p group by rollup (x)", "ROLLUP", "ROLLUP"),
    ("select dp_count(p) from p", "whole-row", None),
    ("select dp_count(*) from p where ctid is not null", "system columns", None),
    ("select dp_count(*) from p where label ~ 'a'", "not allowed", None),
    ("select dp_count(*) from p where label like 'a\\'", "escape character", None),
    ("select dp_count(*) from p where label like label", "not constant", None),
    ("select dp_count(*) from p where random() < 0.5", "not allowed", None),
    ("select dp_count(*) from p where label::int = 1", "not allowed", None),
    ("select dp_count(*) from pg_class", "neither protected nor public", "pg_class"),
    ("select dp_count(*), pg_sleep(1) from p", "not allowed", None),
    ("select dp_count(*), current_user from p", "not allowed", None),
    ("select dp_count(*) from p, c group by p.x + c.x", "one relation only", None),
    ("select x, dp_count(*) from p group by id", "GROUP BY clause", None),
    ("with recursive r as (select 1 union all select 1 from r) select dp_count(*) from p",
     "recursive", "RECURSIVE"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message", "place"), REFUSED)
def test_refusals_name_construct_and_position(
    catalog: LiveCatalog, text: str, message: str, place: str | None
) -> None:
    analysis = catalog.analyze(text)
    with pytest.raises(DpsqlError) as caught:
        analyse(analysis, catalog)
    error = caught.value
    assert error.sqlstate.startswith("PD01")
    assert message in error.message
    assert error.hint
    if place is not None:
        assert error.position is not None
        assert place in analysis["sql"][error.position - 1 : error.position + len(place) + 8]


def test_nondeterministic_collations_are_refused(catalog: LiveCatalog) -> None:
    catalog.connection.execute("set search_path = public")
    catalog.connection.execute(
        "create collation ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
    )
    catalog.connection.execute("create table loose (a text collate ci, b int)")
    loose = LiveCatalog(catalog.connection, {"public.loose": True})
    for text in (
        "select a, dp_count(*) from loose group by a",
        "select dp_count(*) from loose x, loose y where x.a = y.a",
        "select dp_count(*) from (select a as z from loose) x join loose y on x.z = y.a",
    ):
        with pytest.raises(DpsqlError, match="nondeterministic"):
            analyse(loose.analyze(text), loose)
    assert analyse(loose.analyze("select dp_count(*) from loose where b > 1"), loose)


def test_a_join_may_have_such_a_column_that_it_does_not_use(catalog: LiveCatalog) -> None:
    catalog.connection.execute("set search_path = public")
    catalog.connection.execute(
        "create collation ci2 (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
    )
    catalog.connection.execute("create table sides (a text collate ci2, b int)")
    sides = LiveCatalog(catalog.connection, {"public.sides": True})
    for join in ("x join sides y on x.b = y.b", "x join (select b from sides) y using (b)"):
        assert analyse(sides.analyze(f"select dp_count(*) from sides {join}"), sides)
    for text in (
        "select dp_count(*) from sides x join sides y on x.b = y.b where x.a is not null",
        "select dp_count(*) from sides x join sides y using (a)",
        "select dp_count(*) from sides x join (select a::varchar(3) from sides) y using (a)",
        "select dp_count(*) from (sides x join sides y using (b)) as j (b, s, t) where s > 'a'",
        "select dp_count(s) from (sides x join sides y using (b)) as j (b, s, t)",
    ):
        with pytest.raises(DpsqlError, match="nondeterministic"):
            analyse(sides.analyze(text), sides)


def test_deep_nesting_is_refused(catalog: LiveCatalog) -> None:
    text = "select dp_count(*) from p where " + "(" * 400 + "x" + " + 1)" * 400 + " > 0"
    with pytest.raises(DpsqlError, match=r"too (deeply|complex)"):
        analyse(catalog.analyze(text), catalog)


def test_a_foreign_key_removes_the_join_to_its_parent(catalog: LiveCatalog) -> None:
    text = "select dp_count(*) from p join c on p.id = c.p_id"
    with_keys = analyse(catalog.analyze(text), catalog).aggregates[0]
    without = analyse(catalog.analyze(text), catalog, use_keys=False).aggregates[0]
    assert [o.relation.name for o in with_keys.occurrences] == ["c"]
    assert [*map(render, with_keys.occurrences[0].filters)] == ['(r0."p_id" IS NOT NULL)']
    assert len(without.occurrences) == 2
