"""What cannot be released is refused before it is charged, with what is wrong and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.asking import refused
from tests.server.releasing import declare, release, spent

pytestmark = pytest.mark.server

ALL = "select s_state, dp_count(*) from sale group by s_state"


@pytest.fixture(scope="module")
def sales(server: Any) -> Iterator[Any]:
    database = declare(server.create_database())
    database.sql(
        """create table pair (a int, b int); alter table pair owner to owner1;
           insert into pair values (1, 1), (1, 2);
           alter table nobody add n_rest text, add n_size numeric"""
    )
    database.sql(
        """select dp.declare_public('pair');
           select dp.set_domain('nobody', 'n_rest', array['x', 'y'], true, other => 'rest');
           select dp.set_domain('nobody', 'n_size', array[1.1, 2], true)""",
        user="owner1",
    )
    with database.connect("alice") as alice:
        release(alice, "taken", ALL, epsilon=0.5)
    yield database
    server.drop_database(database)


@pytest.fixture
def alice(sales: Any) -> Iterator[Any]:
    before = spent(sales)
    with sales.connect("alice") as session:
        yield session
    assert spent(sales) == before
    assert sales.sql("select name::text from dp.releases") == [("taken",)]


def say(error: Any) -> str:
    """Return all that is told."""
    told = error.diag
    return f"{told.sqlstate} {told.message_primary} | {told.message_detail} | {told.message_hint}"


# statement, and texts that must be told in this order
STATEMENTS = {
    "undeclared domain": (
        "select s_price, dp_count(*) from sale group by 1",
        ["PD020", "public domain", "dp.set_domain('public.sale', 's_price'"],
    ),
    "one of two undeclared": (
        "select s_state, s_id, dp_count(*) from sale group by cube (1, 2)",
        ["PD020", "dp.set_domain('public.sale', 's_id'"],
    ),
    "column of a condition undeclared": (
        f"{ALL} union all select null, dp_count(*) from sale where s_price < 3",
        [
            "PD020",
            "a condition of one query",
            "all queries",
            "dp.set_domain('public.sale', 's_price'",
        ],
    ),
    "columns of a condition and of a key undeclared": (
        "select s_id, dp_count(*) from sale group by 1"
        " union all select null, dp_count(*) from sale where s_price < 3",
        ["PD020", "each group key", "'s_id'", "'s_price'"],
    ),
    "two protected relations": (
        "select s_state, dp_count(*) from sale join nobody on s_kind = n_kind group by 1",
        ["PD011", "several protected relations", "any number of joined rows", "public relations"],
    ),
    "self-join": (
        "select a.s_state, dp_count(*) from sale a join sale b on a.s_id = b.s_id group by 1",
        ["PD011", "several protected relations"],
    ),
    "public, not along a key": (
        "select s_state, dp_count(*) from sale join pair on s_place = a group by 1",
        ["PD011", "in several joined rows", "public.pair", "keys"],
    ),
    "public, by a comparison": (
        "select s_state, dp_count(*) from sale join place on s_place >= p_id group by 1",
        ["PD011", "in several joined rows", "public.place"],
    ),
    "public only": (
        "select p_big, dp_count(*) from place group by 1",
        ["PD011", "public relations only", "directly"],
    ),
    "not declared at all": ("select relkind, dp_count(*) from pg_class group by 1", ["PD012"]),
    "no key": ("select dp_count(*) from sale", ["PD011", "needs a group key"]),
    "no count": ("select s_state from sale group by 1", ["one dp_count(*)"]),
    "two counts": (
        "select s_state, dp_count(*), dp_count(*) from sale group by 1",
        ["PD011", "one dp_count(*)"],
    ),
    "a sum": (
        "select s_state, dp_sum(s_pieces, 0, 6) from sale group by 1",
        ["PD011", "counts rows", "dp_count(*)"],
    ),
    "count(*)": (
        "select s_state, count(*) from sale group by 1",
        ["PD011", "counts rows by dp_count(*)", "Write dp_count(*) for count(*)"],
    ),
    "count(*) beside dp_count(*)": (
        "select s_state, dp_count(*), sum(s_pieces) from sale group by 1",
        ["PD011", "counts rows by dp_count(*)", "questions of their own"],
    ),
    "count of a column": (
        "select s_state, dp_count(s_kind) from sale group by 1",
        ["PD011", "counts rows"],
    ),
    "filter": (
        "select s_state, dp_count(*) filter (where s_big) from sale group by 1",
        ["PD011", "FILTER", "WHERE"],
    ),
    "never true": (f"{ALL.replace('group', 'where false group')}", ["PD011", "never true"]),
    "a query never true": (
        f"{ALL} union all select null, dp_count(*) from sale where false or null",
        ["PD011", "a condition of query 2 is never true", "Leave the query out"],
    ),
    "the value for all others": (
        "select n_rest, dp_count(*) from nobody where n_rest = 'rest' group by 1",
        ["PD011", "n_rest is compared with rest", "n_rest NOT IN ('x', 'y')"],
    ),
    "the value for all others, in a key": (
        "select case when n_rest in ('x', 'rest') then 1 end, dp_count(*) from nobody group by 1",
        ["PD011", "n_rest is compared with rest"],
    ),
    "prefixes of a key with others": (
        "select dp.prefix(n_rest), dp_count(*) from nobody group by 1",
        ["PD011", "dp.prefix is not for", "without other"],
    ),
    "what tells others apart": (
        "select n_flag, dp_count(*) from nobody group by 1"
        " union all select null, dp_count(*) from nobody where n_rest like 'x%'",
        ["PD011", "n_rest tells values apart that count as one", "NOT IN"],
    ),
    "an expression of a key with others": (
        "select upper(n_rest), dp_count(*) from nobody group by 1",
        ["PD020", "group by n_rest itself", "rest for other values"],
    ),
    "what tells equal numbers apart": (
        "select n_flag, dp_count(*) from nobody group by 1"
        " union all select null, dp_count(*) from nobody where n_size::text = '1.10'",
        ["PD011", "n_size may tell equal values apart", "without a cast to text"],
    ),
    "computed with": (
        "select s_state, dp_count(*) + 1 from sale group by 1",
        ["PD011", "dp_count(*)"],
    ),
    "key not shown": ("select dp_count(*) from sale group by s_state", ["PD011", "select list"]),
    "having": (f"{ALL} having dp_count(*) > 3", ["PD011", "HAVING", "free"]),
    "order by": (f"{ALL} order by 1", ["PD011", "ORDER BY", "free"]),
    "limit": (f"{ALL} limit 1", ["PD011", "LIMIT", "free"]),
    "distinct": (ALL.replace("select", "select distinct"), ["PD011", "DISTINCT", "free"]),
    "union": (f"{ALL} union {ALL}", ["PD011", "UNION without ALL", "UNION ALL"]),
    "except": (f"{ALL} except all {ALL}", ["PD011", "EXCEPT"]),
    "other relations": (
        f"{ALL} union all select null, dp_count(*) from nobody",
        ["PD011", "different relations", "same FROM"],
    ),
    "grouping": (
        "select s_state, grouping(s_state), dp_count(*) from sale group by rollup (1)",
        ["PD011", "GROUPING()", "column"],
    ),
    "own column": (
        "select s_state as value, dp_count(*) from sale group by 1",
        ["PD040", '"value"', "standard_error", "the key another name", "value_key"],
    ),
    "own column as a label": (
        "select s_state, 'all' as value, dp_count(*) from sale group by 1",
        ["PD040", '"value"', "standard_error", "the label another name", "value_label"],
    ),
    "system column": (
        "select s_state as xmin, dp_count(*) from sale group by 1",
        ["PD040", '"xmin"', "another"],
    ),
    "column too long": (
        f"select dp.ranges(s_pieces, 2) as {'x' * 60}, dp_count(*) from sale group by 1",
        ["PD040", "64 bytes; a name has at most 63", "another"],
    ),
    "column twice": (
        "select s_state as k, s_big as k, dp_count(*) from sale group by 1, 2",
        ["PD040", '"k"', "The statement has two columns", "the key another name", "k_key"],
    ),
    "width 0": (
        "select dp.ranges(s_pieces, 0) p, dp_count(*) from sale group by 1",
        ["PD011", "width", "positive", "dp.ranges"],
    ),
    "width NULL": (
        "select dp.ranges(s_pieces, null) p, dp_count(*) from sale group by 1",
        ["PD011", "width"],
    ),
    "width too large": (
        "select dp.ranges(s_pieces, 8) p, dp_count(*) from sale group by 1",
        ["PD040", "8 levels at a time, of 7", "smaller"],
    ),
    "two forms of a key": (
        "select s_pieces, dp.prefix(s_pieces) p, dp_count(*) from sale group by 1, 2",
        ["PD011", "two forms", "GROUPING SETS"],
    ),
    "prefix in a condition": (
        f"{ALL} union all select null, dp_count(*) from sale where dp.prefix(s_pieces) = 1",
        ["PD013", "prefix"],
    ),
    "nothing holds": (
        "select s_big, dp_count(*) from sale where s_state is null and s_state = 'open' group by 1"
        " union all select s_big, dp_count(*) from sale where s_pieces > 10 group by 1",
        ["PD010", "conditions"],
    ),
    "a function that may fail": (
        "select s_state, dp_count(*) from sale where s_pieces / (s_pieces - 1) = 2"
        " and sqrt(s_pieces - 2) > 1 group by 1",
        ["PD013", "sqrt"],
    ),
    "two statements": (f"{ALL}; {ALL}", ["PD014", "exactly one SELECT"]),
    "not a query": ("drop table sale", ["PD014", "exactly one SELECT"]),
    "a parameter": (
        "select s_state, dp_count(*) from sale where s_pieces = $1 group by 1",
        ["42P02", "Write the value itself"],
    ),
    "lateral": (
        "select s_state, dp_count(*) from sale, lateral (select s_big) x group by 1",
        ["PD011", "LATERAL"],
    ),
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_statements(alice: Any, name: str) -> None:
    statement, told = STATEMENTS[name]
    error = refused(alice, f"select dp.release('r', $q${statement}$q$)")
    place = 0
    for text in told:
        assert text in say(error)[place:], say(error)
        place = say(error).index(text, place)
    # the plan says the same; it needs no name, so that it knows nothing of the table's columns
    if told[0] != "PD040" or "levels" in told[1]:
        planned = refused(alice, f"select * from dp.plan_release($q${statement}$q$)")
        assert say(planned) == say(error)


TERMS = {
    "epsilon => 0": ["PD040", 'parameter "epsilon" must', "at least"],
    "epsilon => -1": ["PD040", "epsilon", "Got -1"],
    "epsilon => 'NaN'": ["PD040", "epsilon", "finite"],
    "epsilon => 'infinity'": ["PD040", "epsilon"],
    "epsilon => 1e9": ["PD040", "epsilon", "at most"],
    "epsilon => 1000, delta => 0": ["PD040", "epsilon", "at most"],
    "epsilon => 1e-30": ["PD040", "epsilon"],
    "delta => -1e-9": ["PD040", 'parameter "delta" must', "between"],
    "delta => 0.5": ["PD040", "delta", "between"],
    "delta => 'NaN'": ["PD040", "delta"],
    "mechanism => 'magic'": ["PD040", "mechanism", "residual_planner", "Got magic"],
    "mechanism => ''": ["PD040", "mechanism"],
    "mechanism => 'residual_planner', delta => 0": ["PD010", "no mechanism", "Gaussian", "plan_release"],
    "postprocess => 'magic'": ["PD040", "postprocess", "Got magic"],
    "weights => '{}'": ["PD040", "weights", "1 quer", "0 weights"],
    "mechanism => 'residual_planner', epsilon => 40, delta => 1e-9":
        ["PD010", "no mechanism", "at epsilon 40", "epsilon of at most 33 or delta above", "plan_release"],
    "mechanism => 'pairs', delta => 1e-30": ["PD010", "no mechanism", "at epsilon 1", "delta above"],
    "weights => '{1e300}'": ["PD040", "weights", "from 0.0001 to 10000", "1e+300", "ratios"],
    "weights => '{1e-300}'": ["PD040", "weights", "from 0.0001 to 10000", "1e-300"],
    "weights => '{1,2}'": ["PD040", "weights", "1 quer", "2 weights"],
    "weights => '{0}'": ["PD040", "weights", "positive"],
    "weights => '{-1}'": ["PD040", "weights", "positive", "-1"],
    "weights => '{NaN}'": ["PD040", "weights", "positive"],
    "weights => '{Infinity}'": ["PD040", "weights", "positive"],
    "weights => '{NULL}'": ["PD040", "weights", "NULL"],
}  # fmt: skip


@pytest.mark.parametrize("terms", TERMS)
def test_terms(alice: Any, terms: str) -> None:
    error = refused(alice, f"select dp.release('r', $q${ALL}$q$, {terms})")
    place = 0
    for text in TERMS[terms]:
        assert text in say(error)[place:], say(error)
        place = say(error).index(text, place)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("null", ["PD040", '"name"', "null"]),
        ("''", ["PD040", '"name"', "1 to 63"]),
        (f"'{'x' * 64}'", ["PD040", '"name"', "64 bytes"]),
        (f"'{'ü' * 32}'", ["PD040", '"name"', "64 bytes"]),
        ("'taken'", ["PD040", "dpv.taken", "dp.drop_release", "dp.refresh_release"]),
    ],
)
def test_names(alice: Any, name: str, told: list[str]) -> None:
    error = refused(alice, f"select dp.release({name}, $q${ALL}$q$)")
    assert all(text in say(error) for text in told), say(error)


def test_names_are_quoted(sales: Any) -> None:
    with sales.connect("alice") as alice:
        for name in ('a"b', "x; drop table sale", "Groß", "select", "a.b", "a''b"):
            shown = alice.execute(f"select dp.release('{name}', $q${ALL}$q$, 0.5)").fetchone()[0]
            assert alice.execute(f"select count(*) from {shown}").fetchone() == (4,)
            listed = alice.execute("select name::text, relation::text from dp.releases").fetchall()
            assert (name.replace("''", "'"), shown) in listed
            alice.execute(f"select dp.drop_release('{name}')")
    assert sales.sql("select count(*) from dp.stored_release") == [(1,)]


LARGE = """
create table wide (a int, b int, c int, d text); alter table wide owner to owner1;
"""


def test_a_domain_too_large_for_the_vector_names_who_needs_none(sales: Any) -> None:
    sales.sql(LARGE)
    with sales.connect("owner1") as owner:
        owner.execute("select dp.protect('wide')")
        for column in "abc":
            owner.execute(f"select dp.set_domain('wide', '{column}', 1, 500)")
    sets = "select a, b, c, dp_count(*) from wide group by grouping sets ((a), (b), (c), (a, b))"
    with sales.connect("alice") as alice:
        for mechanism in ("identity", "opt_kron"):
            error = refused(
                alice, f"select dp.release('w', $q${sets}$q$, mechanism => '{mechanism}')"
            )
            told = say(error)
            assert "too large" in told
            assert "125000000 cells" in told
            assert "residual_planner" in told
        planned = alice.execute(
            "select mechanism, noise, chosen, note from dp.plan_release(%s, 1, 1e-9)", (sets,)
        ).fetchall()
        good = {row[0] for row in planned if "too" not in row[3]}
        assert {"opt_m", "residual_planner"} <= good
        found = release(alice, "w", sets, epsilon=1, delta=1e-9)
        assert len(found) == 3 * 500 + 500 * 500
        alice.execute("select dp.drop_release('w')")
        cube = "select a, b, c, dp_count(*) from wide group by cube (a, b, c)"
        error = refused(alice, f"select dp.release('w', $q${cube}$q$)")
        assert "too many cells" in say(error)


def test_forms_stand_in_releases_only(sales: Any) -> None:
    with sales.connect("alice") as alice:
        for form in ("prefix(1)", "all_ranges(1)", "ranges(1, 2)"):
            error = refused(alice, f"select dp.{form}")
            assert "in the statement of a release only" in say(error)
            assert "dp.release(" in say(error)


def test_texts_in_an_order_of_their_own_are_not_compared(sales: Any) -> None:
    """Levels are constants, which the database's collation orders: other rows would be counted."""
    sales.sql("""create table ordered (a text collate "C", b int);
        insert into ordered values ('a', 1), ('B', 2);
        alter table ordered owner to owner1""")
    with sales.connect("owner1") as owner:
        owner.execute("select dp.protect('ordered'), dp.set_domain('ordered', 'b', 1, 2)")
        owner.execute("select dp.set_domain('ordered', 'a', array['a', 'B'])")
    union = "select b, dp_count(*) from ordered{} group by b"
    with sales.connect("alice") as alice:
        for text in (
            "select dp.prefix(a), dp_count(*) from ordered group by 1",
            union.format(" where a < 'b'") + " union all " + union.format(""),
        ):
            told = say(refused(alice, f"select dp.release('o', $q${text}$q$, 1)"))
            assert "an order of texts of its own" in told
            assert "level by level" in told
        levels = release(
            alice, "o", "select a, dp_count(*) from ordered where a < 'b' group by a", epsilon=100
        )
        assert [round(r["value"]) for r in sorted(levels, key=lambda r: r["a"])] == [1, 1]
        alice.execute("select dp.drop_release('o')")
