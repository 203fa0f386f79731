"""The reader of a release's statement: grouping sets, unions, positions of what is refused."""

from __future__ import annotations

import random
from itertools import combinations

import pytest
from sqlglot import exp

from dpsql.errors import DpsqlError, SyntaxInvalid, UnsupportedConstruct
from dpsql.query import grouping_sets
from dpsql.query.grouping_sets import MAX_QUERIES, MAX_SETS, parse_workload
from dpsql.query.nodes import names
from dpsql.query.parse import parse
from dpsql.sqltree.nodes import Call, Operation

SELECT = "SELECT a, public.dp_count(*) AS n FROM public.t GROUP BY "


def shown(node: exp.Expr) -> str:
    """Write a node so that what the tests ask for can be told apart."""
    node = node.unnest()
    if isinstance(node, exp.Column):
        return ".".join(names(node))
    if isinstance(node, exp.Literal):
        return node.name
    if isinstance(node, Call):
        inside = ",".join(map(shown, node.expressions))
        return f"{node.schema}.{node.name}({inside})".lstrip(".")
    assert isinstance(node, Operation)
    return f"[{node.args['operator']} {shown(node.this)},{shown(node.expression)}]"


def sets(text: str) -> list[str]:
    """Read one GROUP BY; each set as its keys in order, joined by commas."""
    (query,) = parse_workload(SELECT + text)
    return [",".join(shown(key) for key in keys) for keys in grouping_sets.sets(query)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", ["a"]),
        ("a, b", ["a,b"]),
        ("CUBE(a)", ["a", ""]),
        ("CUBE(a, b)", ["a,b", "a", "b", ""]),
        ("ROLLUP(a, b, c)", ["a,b,c", "a,b", "a", ""]),
        ("GROUPING SETS (a, (), (b, a))", ["a", "", "b,a"]),
        ("GROUPING SETS (())", [""]),
        ("()", [""]),
        ("a, CUBE(b)", ["a,b", "a"]),
        ("ROLLUP(a), ROLLUP(b)", ["a,b", "a", "b", ""]),
        ("CUBE((a, b), c)", ["a,b,c", "a,b", "c", ""]),
        ("ROLLUP((a, b), c)", ["a,b,c", "a,b", ""]),
        ("GROUPING SETS (CUBE(a), ROLLUP(b, c), (d))", ["a", "", "b,c", "b", "", "d"]),
        ("GROUPING SETS (GROUPING SETS (a, b), (c))", ["a", "b", "c"]),
        ("GROUPING SETS (ROLLUP(a)), GROUPING SETS (b, c)", ["a,b", "a,c", "b", "c"]),
        ("a, a", ["a"]),
        ("CUBE(a, a)", ["a", "a", "a", ""]),
        ("GROUPING SETS ((a, b), (b, a))", ["a,b", "b,a"]),
        ("DISTINCT CUBE(a, a)", ["a", ""]),
        ("DISTINCT GROUPING SETS ((a, b), (b, a))", ["a,b"]),
        ("DISTINCT ROLLUP(a), ROLLUP(a)", ["a", ""]),
    ],
)
def test_sets_are_those_of_the_standard(text: str, expected: list[str]) -> None:
    assert sets(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(t.a / 2)", ["[/ t.a,2]"]),
        ("(t.a / 2), b", ["[/ t.a,2],b"]),
        ("CUBE((t.a / 2), b)", ["[/ t.a,2],b", "[/ t.a,2]", "b", ""]),
        ("CUBE(((t.a / 2), b), c)", ["[/ t.a,2],b,c", "[/ t.a,2],b", "c", ""]),
        ("ROLLUP(((t.a / 2)))", ["[/ t.a,2]", ""]),
        ("GROUPING SETS (((t.a / 2)))", ["[/ t.a,2]"]),
        ("GROUPING SETS ((f(a, b)), (f(a)))", ["f(a,b)", "f(a)"]),
        ("GROUPING SETS ((t.a), (t.b))", ["t.a", "t.b"]),
        ('GROUPING SETS (("A, b"), ("c)"))', ["A, b", "c)"]),
        ("GROUPING SETS ((dp.ranges(a, 2), b), (dp.prefix(a)))", ["dp.ranges(a,2),b", "dp.prefix(a)"]),
        ("GROUPING SETS (((t.a + 1) / (t.b + 2)))", ["[/ [+ t.a,1],[+ t.b,2]]"]),
    ],
)  # fmt: skip
def test_parentheses_of_operators_are_no_sets(text: str, expected: list[str]) -> None:
    assert sets(text) == expected


def test_sets_agree_with_a_model_of_the_standard() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201
    random_ = random.Random(seed)
    for _ in range(300):
        items = [_item(random_, 2) for _ in range(random_.randint(1, 3))]
        expected: list[tuple[str, ...]] = [()]
        for _, own in items:
            expected = [tuple(dict.fromkeys(a + b)) for a in expected for b in own]
        if len(expected) <= MAX_SETS:
            assert sets(", ".join(text for text, _ in items)) == [",".join(s) for s in expected]


def _item(random_: random.Random, depth: int) -> tuple[str, list[tuple[str, ...]]]:
    """Draw an item of GROUP BY and, written down apart, its sets."""
    kind = random_.choice(["plain", "list", "cube", "rollup", "sets" if depth else "plain"])
    if kind == "plain":
        name = random_.choice("abcd")
        return name, [(name,)]
    if kind == "list":
        names = tuple(random_.sample("abcd", random_.choice([0, 2, 3])))
        return f"({', '.join(names)})", [names]
    if kind == "sets":
        inner = [_item(random_, depth - 1) for _ in range(random_.randint(1, 3))]
        return f"GROUPING SETS ({', '.join(t for t, _ in inner)})", [
            s for _, own in inner for s in own
        ]
    parts = [
        tuple(random_.sample("abcd", random_.choice([1, 1, 2])))
        for _ in range(random_.randint(1, 3))
    ]
    text = ", ".join(p[0] if len(p) == 1 else f"({', '.join(p)})" for p in parts)
    if kind == "rollup":
        chosen = [parts[:k] for k in range(len(parts), -1, -1)]
    else:
        sizes = range(len(parts), -1, -1)
        chosen = [list(c) for k in sizes for c in combinations(parts, k)]
    found = [tuple(name for part in c for name in part) for c in chosen]
    return f"{kind.upper()}({text})", found


def test_keys_are_all_that_occur_once_each() -> None:
    (query,) = parse_workload(SELECT + "GROUPING SETS ((b, a), (a, c), ())")
    assert [shown(key) for key in grouping_sets.keys(query)] == ["b", "a", "c"]


def test_queries_are_united_in_order() -> None:
    arms = [f"SELECT {i} AS i, public.dp_count(*) AS n FROM public.t" for i in range(3)]
    found = parse_workload(" UNION ALL ".join(arms) + " ;")
    assert [shown(query.expressions[0].unalias()) for query in found] == ["0", "1", "2"]
    assert all(grouping_sets.sets(query) == [] for query in found)


REFUSED = [
    # construct (found at the place of the first @, which is taken out), message, in the hint
    (f"{SELECT}a @UNION SELECT 1", "UNION without ALL", "UNION ALL"),
    (f"{SELECT}a @EXCEPT ALL SELECT 1", "UNION, INTERSECT and EXCEPT", ""),
    (f"{SELECT}a UNION ALL {SELECT}a @INTERSECT SELECT 1", "UNION, INTERSECT and EXCEPT", ""),
    ("SELECT @GROUPING(a) AS g FROM public.t GROUP BY CUBE(a)", "GROUPING()", '"grouping"'),
    ("SELECT a FROM (SELECT a FROM public.t GROUP BY @CUBE(a)) s", "GROUPING SETS, ROLLUP", ""),
    ("SELECT a FROM (SELECT a FROM public.t @UNION ALL SELECT 1) s", "UNION, INTERSECT", ""),
    ("WITH x AS (SELECT a FROM public.t GROUP BY @ROLLUP(a)) SELECT a FROM x", "GROUPING SETS", ""),
]


@pytest.mark.parametrize(("text", "message", "hint"), REFUSED)
def test_what_cannot_be_released_is_named_with_its_place(
    text: str, message: str, hint: str
) -> None:
    place = text.index("@") + 1
    with pytest.raises(UnsupportedConstruct) as caught:
        parse_workload(text.replace("@", ""))
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")
    position = caught.value.position
    # a clause may be pointed at from its first word or from the one after it
    assert position is not None
    assert place <= position <= place + len("UNION ")


@pytest.mark.parametrize(
    "text",
    [
        *(f"{SELECT}CUBE(a", f"{SELECT}CUBE()", f"{SELECT}CUBE a", f"{SELECT}GROUPING SETS ()"),
        *(f"{SELECT}GROUPING (a)", f"{SELECT}a,", f"{SELECT}(a, b", f"{SELECT}a UNION ALL"),
        f"{SELECT}a) UNION ALL ({SELECT}a",
    ],
)
def test_broken_statements_are_refused(text: str) -> None:
    with pytest.raises(DpsqlError):
        parse_workload(text)


def test_the_number_of_sets_is_bounded_before_they_are_written_down() -> None:
    keys = [f"k{i}" for i in range(40)]
    assert len(sets(f"CUBE({', '.join(keys[:12])})")) == MAX_SETS
    halves = f"CUBE({', '.join(keys[:7])}), CUBE({', '.join(keys[7:14])})"
    rollups = ", ".join(f"ROLLUP({', '.join(keys[4 * i : 4 * i + 4])})" for i in range(8))
    for text in (f"CUBE({', '.join(keys)})", halves, rollups):
        with pytest.raises(UnsupportedConstruct, match=f"more than {MAX_SETS} grouping sets"):
            sets(text)


def test_the_number_of_queries_is_bounded() -> None:
    arm = f"{SELECT}a"
    assert len(parse_workload(" UNION ALL ".join([arm] * MAX_QUERIES))) == MAX_QUERIES
    with pytest.raises(UnsupportedConstruct, match=f"more than {MAX_QUERIES} queries"):
        parse_workload(" UNION ALL ".join([arm] * (MAX_QUERIES + 1)))


def test_deep_nesting_is_refused_and_not_a_crash() -> None:
    deep = "GROUPING SETS (" * 5000 + "a" + ")" * 5000
    with pytest.raises(UnsupportedConstruct, match="nested too deeply"):
        sets(deep)


def test_a_question_still_reads_no_grouping_sets() -> None:
    for text in ("CUBE(a)", "ROLLUP(a)", "GROUPING SETS (a)", "()", "a, CUBE(b)"):
        with pytest.raises(UnsupportedConstruct, match="GROUPING SETS, ROLLUP, CUBE"):
            parse(SELECT + text)
    with pytest.raises((UnsupportedConstruct, SyntaxInvalid)):
        parse(f"{SELECT}a UNION ALL {SELECT}a")
