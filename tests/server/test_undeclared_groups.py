"""Groups that nobody declared: who pays for them is told before, from public facts."""

from __future__ import annotations

from typing import Any, NamedTuple

import psycopg
import pytest

TEXT = "select c_born, dp_count(*) from client group by c_born"


class Heard(NamedTuple):
    """A notice; what psycopg gives to a handler does not outlive the call."""

    severity: str | None
    message_primary: str
    message_detail: str
    message_hint: str
    context: str | None


def listening(shop: Any) -> tuple[psycopg.Connection[Any], list[Heard]]:
    alice = shop.connect(user="alice")
    heard: list[Heard] = []
    alice.add_notice_handler(
        lambda d: heard.append(
            Heard(
                d.severity,
                d.message_primary or "",
                d.message_detail or "",
                d.message_hint or "",
                d.context,
            )
        )
    )
    return alice, heard


def spent(shop: Any) -> float:
    return float(shop.sql("select coalesce(sum(epsilon), 0) from dp.ledger")[0][0])


def test_a_warning_comes_before_the_charge_with_threshold_and_remedy(shop: Any) -> None:
    """One of 200 groups of one row is shown with a probability of at most 200 delta."""
    alice, heard = listening(shop)
    alice.execute("set dp.epsilon = 2; set dp.delta = 1e-14")
    assert alice.execute(TEXT).fetchall() == []
    (warning,) = heard
    assert warning.severity == "WARNING"
    assert warning.message_primary.startswith("the groups of this question are not public")
    # (2 - ln 1e-14 - ln(1 + e^-2)) / 2 = 17.06
    assert "at least 18." in warning.message_detail
    assert "charged" in warning.message_detail
    assert (
        "SELECT dp.set_domain('public.client', 'c_born', date '2000-01-01', date '2000-12-31')"
        in warning.message_hint
    )
    assert warning.context is None
    declaration = warning.message_hint.split("declare them: ")[1].split(". Groups")[0]
    with shop.connect(user="owner1") as owner:
        owner.execute(declaration)
    heard.clear()
    assert len(alice.execute(TEXT).fetchall()) == 366
    assert heard == []


@pytest.mark.parametrize(
    ("column", "call"),
    [
        ("p_client", "dp.set_domain('public.purchase', 'p_client', 0, 100)"),
        ("p_amount", "dp.set_domain('public.purchase', 'p_amount', array[0, 1])"),
    ],
)
def test_the_remedy_fits_the_type(shop: Any, column: str, call: str) -> None:
    alice, heard = listening(shop)
    alice.execute(f"select {column}, dp_count(*) from purchase group by {column}")
    assert call in heard[0].message_hint


def test_the_warning_comes_even_if_the_charge_is_refused(shop: Any) -> None:
    shop.sql("select dp.grant_budget('alice', epsilon => 0.5, delta => 1e-4)")
    alice, heard = listening(shop)
    with pytest.raises(psycopg.Error) as caught:
        alice.execute(TEXT)
    assert caught.value.sqlstate == "PD001"
    assert [one.severity for one in heard] == ["WARNING"]
    assert spent(shop) == 0.0


@pytest.mark.parametrize(
    "key",
    [
        "extract(year from {})",
        "date_part('year', {})",
        "date_trunc('month', {})",
        "extract(month from {}) + 1",
    ],
)
@pytest.mark.parametrize("column", ["c_born", "c_seen"])
def test_periods_of_undeclared_moments_are_warned_of(shop: Any, key: str, column: str) -> None:
    """What a hint says makes the groups public: then they are all there, and nothing is warned."""
    shop.sql(
        "alter table client add c_seen timestamp; update client set c_seen = c_born;"
        "create table calendar (day date primary key);"
        "insert into calendar select date '1960-01-01' + i from generate_series(0, 365) i;"
        "alter table calendar owner to owner1"
    )
    alice, heard = listening(shop)
    text = "select {0}, dp_count(*) from client {1} group by {0}"
    alice.execute(text.format(key.format(column), ""))
    assert "the groups of this question are not public" in heard[0].message_primary
    heard.clear()
    with shop.connect(user="owner1") as owner:
        if column == "c_born":
            owner.execute("select dp.set_domain('client', 'c_born', '1960-01-01', '1960-12-31')")
            statement = text.format(key.format(column), "")
        else:
            owner.execute("select dp.declare_public('calendar')")
            statement = text.format(key.format("day"), "join calendar on c_seen::date = day")
    groups = alice.execute(statement).fetchall()
    assert len(groups) == (1 if "year" in key else 12)
    assert heard == []


def test_what_mends_timestamps_is_said_to_whoever_asks(shop: Any) -> None:
    shop.sql("alter table client add c_seen timestamp")
    alice, heard = listening(shop)
    alice.execute("select date_trunc('month', c_seen), dp_count(*) from client group by 1")
    assert heard[0].message_hint.startswith("Join a public table of days ON c_seen::date = day")


@pytest.mark.parametrize(
    "key", ["extract(month from c_born)::int", "date_part('month', c_born)::smallint"]
)
def test_fields_as_integers_list_themselves(shop: Any, key: str) -> None:
    alice, heard = listening(shop)
    rows = alice.execute(f"select {key} as m, dp_count(*) from client group by 1").fetchall()
    assert [m for m, _ in rows] == [*range(1, 13), None]
    # 31 days of January and so on until July 19; P(|Lap(1)| > 30) is below 1e-9
    born = shop.sql("select extract(month from c_born)::int, count(*) from client group by 1")
    assert all(abs(n - dict(born).get(m, 0)) <= 30 for m, n in rows)
    assert heard == []


def test_the_warning_is_a_function_of_public_facts(shop: Any) -> None:
    alice, heard = listening(shop)
    alice.execute(TEXT)
    shop.sql("update client set c_born = '2001-01-01'")
    alice.execute("set dp.fresh = on")
    alice.execute(TEXT)
    shop.sql("truncate client cascade")
    alice.execute(TEXT)
    assert len(heard) == 3
    assert heard[0] == heard[1] == heard[2]


def test_what_is_paid_already_is_not_warned_of(shop: Any) -> None:
    alice, heard = listening(shop)
    alice.execute(TEXT)
    alice.execute(TEXT)
    assert [one.severity for one in heard] == ["WARNING", "NOTICE"]
    assert spent(shop) == 1.0


def test_a_join_says_that_the_threshold_may_be_higher(shop: Any) -> None:
    alice, heard = listening(shop)
    alice.execute(
        "select c_born, dp_count(*) from client, purchase where c_id = p_client and c_id > 3"
        " group by c_born"
    )
    assert "several times that" in heard[0].message_detail


@pytest.mark.parametrize("level", ["error", "warning", "debug5"])
def test_the_callers_setting_holds_for_it_and_nothing_else_comes(shop: Any, level: str) -> None:
    alice, heard = listening(shop)
    alice.execute(f"set client_min_messages = {level}")
    alice.execute(TEXT)
    ours = [n for n in heard if n.message_primary.startswith("the groups")]
    assert len(ours) == (0 if level == "error" else 1)
    assert alice.execute("show client_min_messages").fetchone() == (level,)
    if level == "warning":
        assert len(heard) == 1


def test_public_and_declared_groups_are_not_warned_of(shop: Any) -> None:
    alice, heard = listening(shop)
    alice.execute("select c_kind, dp_count(*) from client group by c_kind")
    alice.execute("select p_flag, dp_count(*) from purchase group by p_flag")
    alice.execute("select dp_count(*) from client")
    assert heard == []


def test_without_delta_the_analyst_is_told_what_to_do(shop: Any) -> None:
    with shop.connect(user="alice") as alice:
        alice.execute("set dp.delta = 0")
        with pytest.raises(psycopg.Error) as caught:
            alice.execute(TEXT)
    assert caught.value.sqlstate == "PD020"
    assert caught.value.diag.message_hint.startswith("SET dp.delta = 1e-8")
    assert "dp.set_domain('public.client', 'c_born'" in caught.value.diag.message_hint
    assert spent(shop) == 0.0


def test_explain_tells_the_threshold(shop: Any) -> None:
    with shop.connect(user="alice") as alice:
        alice.execute("set dp.epsilon = 2")
        rows = dict(alice.execute("select * from dp.explain(%s)", (TEXT,)).fetchall())
    assert "at least 11." in rows["groups"]
    assert "delta is spent" in rows["mechanism"]
    assert rows["cost delta"] != "0"
    assert "dp.set_domain" in rows["groups"]


@pytest.mark.parametrize(("least", "shown"), [(0, {1, 2}), (1500, {2}), (4000, set())])
def test_the_minimal_frequency_is_one_of_rows(database: Any, least: int, shown: set[int]) -> None:
    """Of 1,000, of 2,000 and of 3 rows: noise of 400 at epsilon 1 has a probability below 1e-100.

    The third is shown with one of about delta e^2, below 1e-14.
    """
    database.sql(
        "create table seen (id int primary key, kind int);"
        "insert into seen select k, case when k <= 1000 then 1 when k <= 3000 then 2 else 3 end"
        " from generate_series(1, 3003) k;"
        "select dp.protect('seen'), dp.grant_budget('alice', 10)"
    )
    text = "select kind, dp_count(*) from seen group by kind"
    with database.connect(user="alice") as alice:
        alice.execute(f"set dp.min_frequency = {least}; set dp.delta = 1e-16")
        assert {row[0] for row in alice.execute(text).fetchall()} == shown
        rows = dict(alice.execute("select * from dp.explain(%s)", (text,)).fetchall())
    assert f"at least {least or 38}." in rows["groups"]


def test_explain_names_the_joins_that_foreign_keys_make_needless(shop: Any) -> None:
    text = (
        "select dp_count(*) from region, client, purchase where r_id = c_region and c_id = p_client"
    )
    with shop.connect(user="alice") as alice:
        rows = dict(alice.execute("select * from dp.explain(%s)", (text,)).fetchall())
        assert rows["private relations"] == "public.purchase"
        assert rows["redundant joins"].startswith("public.client, public.region: foreign keys")
        rows = dict(alice.execute("select * from dp.explain('select dp_count(*) from client')"))
    assert "redundant joins" not in rows


def test_a_foreign_key_holds_only_while_every_partitions_triggers_do(shop: Any) -> None:
    shop.sql(
        "create table cu (id int primary key) partition by range (id);"
        "create table cu1 partition of cu for values from (0) to (100) partition by range (id);"
        "create table cu11 partition of cu1 for values from (0) to (100);"
        "create table od (id int not null references cu); select dp.protect('od'), dp.protect('cu')"
    )
    asked = "select item from dp.explain('select dp_count(*) from od join cu using (id)')"
    with shop.connect(user="alice") as alice:

        def holds() -> bool:
            return ("redundant joins",) in alice.execute(asked).fetchall()

        assert holds()
        shop.sql("alter table cu11 disable trigger all")
        assert not holds()
        shop.sql("alter table cu11 enable trigger all")
        assert holds()


def test_a_refused_relation_is_named_as_its_owner_would_declare_it(shop: Any) -> None:
    shop.sql('create table "Größe" (a int)')
    with shop.connect(user="alice") as alice, pytest.raises(psycopg.Error) as caught:
        alice.execute('select dp_count(*) from "Größe"')
    hint = caught.value.diag.message_hint
    shop.sql('alter table "Größe" owner to owner1')
    with shop.connect(user="owner1") as owner:
        owner.execute(hint.removeprefix("Its owner can declare it: ").split(",")[0])


def test_no_possible_group_costs_nothing_and_reads_nothing(shop: Any) -> None:
    text = (
        "select r_name, dp_count(*) from region, client where r_id = c_region and r_name = 'none'"
        " group by r_name"
    )
    with shop.connect(user="alice") as alice:
        assert alice.execute(text).fetchall() == []
        rows = dict(alice.execute("select * from dp.explain(%s)", (text,)).fetchall())
    assert rows["cost epsilon"] == "0"
    assert rows["groups"].startswith("none")
    assert spent(shop) == 0.0


def test_a_public_condition_leaves_groups_out(shop: Any) -> None:
    shop.sql("create table country (k int primary key, k_name text)")
    shop.sql("alter table region add r_country int")
    shop.sql("update region set r_country = r_id % 2")
    shop.sql("insert into country values (0, 'even'), (1, 'odd')")
    shop.sql("alter table country owner to owner1")
    with shop.connect(user="owner1") as owner:
        owner.execute("select dp.declare_public('country')")
    with shop.connect(user="alice") as alice:
        rows = alice.execute(
            "select r_name, dp_count(*) from region join country on r_country = k"
            " join client on c_region = r_id where k_name = 'odd' group by r_name order by 1"
        ).fetchall()
    assert [r[0] for r in rows] == ["region 1", "region 3"]
    assert all(20 < r[1] < 80 for r in rows)  # 50 each; P(|Lap| >= 30) below 1e-9 at scale 1


@pytest.mark.parametrize(
    "text",
    [
        "select dp_count(*) from purchase where p_client / 0 = 1",
        "select dp_count(*) from purchase where p_id % 0 = 1",
        "select dp_count(*) from purchase where mod(p_id, 0) = 1",
        "select dp_count(*) from purchase where p_amount / 0.00 > 1",
        "select dp_count(*) from purchase where p_amount::float8 / -0.0 > 1",
        "select p_client / 0, dp_count(*) from purchase group by 1",
        "select dp_count(p_client % 0) from purchase",
        "select dp_count(*) / 0 from purchase",
        "select dp_count(*) % 0 from purchase",
        "select mod(dp_count(*), 0), div(dp_count(*)::numeric, 0) from purchase",
        "select dp_count(*)::numeric / 0.0 from purchase",
        "select dp_count(*) from purchase having 1 / 0 < dp_count(*)",
    ],
)
def test_a_division_by_the_constant_zero_is_refused_for_nothing(shop: Any, text: str) -> None:
    with shop.connect(user="alice") as alice, pytest.raises(psycopg.Error) as caught:
        alice.execute(text)
    assert caught.value.sqlstate == "PD013"
    assert "division by the constant 0" in caught.value.diag.message_primary
    assert "divisor" in caught.value.diag.message_hint
    assert spent(shop) == 0.0


def test_window_functions_are_asked_around_the_answer(shop: Any) -> None:
    with shop.connect(user="alice") as alice:
        direct = alice.execute(
            "select c_kind, dp_count(*), rank() over (order by dp_count(*)) from client group by c_kind"
        ).fetchall()
        around = alice.execute(
            "select c_kind, n, rank() over (order by n) from"
            " (select c_kind, dp_count(*) as n from client group by c_kind) as answer"
        ).fetchall()
    assert len(direct) == 3
    assert sorted(direct, key=str) == sorted(around, key=str)
    assert shop.sql("select count(*) from dp.ledger") == [(1,)]


def test_explain_with_parameters(shop: Any) -> None:
    text = "select dp_count(*) from purchase where p_day < $1 and p_amount > $2 and p_flag = $3"
    with shop.connect(user="alice") as alice:
        rows = dict(
            alice.execute("select * from dp.explain(%s, '2024-02-01', '3.5', null)", (text,))
        )
        assert rows["private relations"] == "public.purchase"
        with pytest.raises(psycopg.Error) as caught:
            alice.execute("select * from dp.explain(%s, '2024-02-01')", (text,))
        assert "there is no parameter $2" in caught.value.diag.message_primary
        assert "dp.explain($$ ... $$, 'value of $1', ...)" in caught.value.diag.message_hint
        assert int(caught.value.diag.internal_position) == text.index("$2") + 1
        with pytest.raises(psycopg.Error) as caught:
            alice.execute("select * from dp.explain(%s, 'no date', '1', 'true')", (text,))
        assert "no date" in caught.value.diag.message_primary
        # a value is a value, whatever it looks like
        quoted = "x' or true --"
        rows = dict(
            alice.execute(
                "select * from dp.explain('select dp_count(*) from client where c_kind = $1', %s)",
                (quoted,),
            )
        )
        assert rows["cost epsilon"] == "1"
        assert spent(shop) == 0.0


def test_bounds_list_no_groups_and_leave_other_questions_alone(shop: Any) -> None:
    alice, heard = listening(shop)
    text = "select p_amount, dp_count(*) from purchase group by 1"
    before = alice.execute("select dp_count(*) from purchase").fetchall()
    with shop.connect(user="owner1") as owner:
        owner.execute("select dp.set_domain('public.purchase', 'p_amount', 0, 250.5)")
        owner.execute("select dp.set_domain('public.purchase', 'p_client', 0, 2000000)")
    assert abs(alice.execute("select dp_count(*) from purchase").fetchone()[0] - before[0][0]) < 200
    alice.execute("set dp.delta = 0")
    with pytest.raises(psycopg.Error) as caught:
        alice.execute(text)
    said = str(caught.value.diag.message_primary) + str(caught.value.diag.message_hint)
    assert "width_bucket(p_amount, 0.00, 250.50, 10)" in said
    assert "the declared range of p_amount lists no values" in said
    counts = alice.execute(
        "select width_bucket(p_amount, 0.00, 250.50, 10), dp_count(*) from purchase group by 1"
    ).fetchall()
    assert len(counts) == 13  # below, ten buckets, above, NULL
    assert heard == []


def test_texts_that_a_domain_does_not_list_are_told_before_the_charge(shop: Any) -> None:
    shop.sql("select dp.set_domain('public.client', 'c_kind', array['good', 'bad'])", user="owner1")
    alice, heard = listening(shop)
    alice.execute("set dp.epsilon = 0.1")

    def told(condition: str, more: str = "") -> str:
        heard.clear()
        alice.execute(f"select dp_count(*) from client where {condition} {more}")
        words = [h.message_primary for h in heard if "condition compares" in h.message_primary]
        return "; ".join(words)

    misspelt = "a condition compares c_kind with 'godo': not among the declared values"
    assert told("c_kind = 'godo'") == misspelt
    assert told("c_kind <> 'godo' and c_id < 3") == misspelt
    assert told("c_kind in ('good', 'godo', 'bad')") == misspelt
    assert told("case when c_kind = 'godo' then 1 else 2 end = 1") == misspelt
    # stored, or of groups that there are not: nothing is charged, nothing is told
    assert told("c_kind = 'godo'") == ""
    before = spent(shop)
    assert told("c_kind = 'godo'", "group by c_kind") == ""
    assert spent(shop) == before
    for condition in (
        "c_kind = 'good'",
        "c_kind in ('good', 'bad')",
        "c_kind like 'go%'",
        "c_kind is null",
        "c_id = 7",
    ):
        assert told(condition) == "", condition
    # blanks at the end are none of a character(n)
    assert told("c_kind = 'good  '::char(8)") == ""
    # where all other values count as one there are some
    with shop.connect(user="owner1") as owner:
        owner.execute(
            "select dp.set_domain('public.client', 'c_kind', array['good', 'bad'], other => 'o')"
        )
    assert told("c_kind = 'godo' and c_id < 4") == ""


def test_the_domain_of_a_public_relation_lists_what_is_there_and_nothing_is_told(shop: Any) -> None:
    shop.sql("select dp.set_domain('public.region', 'r_name', array['x'])", user="owner1")
    alice, heard = listening(shop)
    alice.execute(
        "select dp_count(*) from client join region on c_region = r_id where r_name = 'nowhere'"
    )
    assert [h for h in heard if "condition compares" in h.message_primary] == []
