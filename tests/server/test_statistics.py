"""Statistics that live: taking, using and forgetting them, and who may see any of it."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from dpsql.core import sensitivity, stale
from dpsql.model import Boundary, JoinQuery, Shape
from dpsql.statistics.stored import unfiltered, wanted
from tests.direct import Direct
from tests.server.collecting import JOIN, WIDE, Collector


def count(stats: Collector, query: JoinQuery, method: str) -> dict[Boundary, int]:
    from dpsql.statistics.counts import count as exact

    needed = stale.required(query.shape(), stale.numbering(query), method)
    return exact(
        unfiltered(query), needed, Direct(stats.admin), answer=False, kernel="sql"
    ).boundaries


def test_frequencies_are_exact_and_cover_elastic_sensitivity(stats: Collector) -> None:
    stats.collect("client", "purchase", "region")
    for text in (JOIN, WIDE):
        query = stats.query(text)
        found = stats.load(query, "elastic")
        assert found is not None
        assert found.values == count(stats, query, "elastic")
        assert set(found.shifts) == {0}


def test_frequencies_alone_do_not_give_boundaries_of_several_relations(stats: Collector) -> None:
    stats.collect("client", "purchase", "region")
    assert stats.load(stats.query(WIDE), "residual") is None


@pytest.mark.parametrize("text", [JOIN, WIDE, WIDE + " and a.p_flag and r_name like 'r%%'"])
def test_a_kept_question_has_all_boundaries_of_one_snapshot(stats: Collector, text: str) -> None:
    stats.collect("client", "purchase", "region")
    stats.owner.execute("select dp.keep_statistics(%s)", (text.replace("%%", "%"),))
    query = stats.query(text.replace("%%", "%"))
    assert stats.load(query) is None
    stats.owner.execute("select dp.refresh_statistics('client')")
    for method in ("residual", "elastic"):
        found = stats.load(query, method)
        assert found is not None
        assert found.values == count(stats, query, method)


def test_filtered_and_unfiltered_questions_share_statistics(stats: Collector) -> None:
    stats.collect("client", "purchase", "region")
    stats.owner.execute("select dp.keep_statistics(%s)", (WIDE,))
    stats.owner.execute("select dp.refresh_statistics('purchase')")
    found = stats.load(stats.query(WIDE + " and a.p_amount > 5 and c_kind = 'a'"))
    assert found is not None
    assert found == stats.load(stats.query(WIDE))


def test_changes_shift_the_relation_that_changed_public_ones_too(stats: Collector) -> None:
    stats.collect("client", "purchase", "region")
    stats.owner.execute("select dp.keep_statistics(%s)", (WIDE,))
    stats.owner.execute("select dp.refresh_statistics('region')")
    query = stats.query(WIDE)
    stats.admin.execute("insert into region values (5, 'five'), (6, 'six')")
    stats.admin.execute("update client set c_region = 5 where c_id <= 7")
    found = stats.load(query)
    assert found is not None
    by_name = {
        o.relation.name: found.shifts[n]
        for o, n in zip(query.occurrences, stale.numbering(query), strict=True)
    }
    assert by_name == {"purchase": 0, "client": 7} | ({"region": 2} if "region" in by_name else {})
    arguments = (query.shape(), stale.numbering(query), found.values)
    fresh = stale.bound(*arguments, (0,) * len(found.shifts), 2.0)
    assert stale.bound(*arguments, found.shifts, 2.0).exact >= fresh.exact
    now = sensitivity.bound(query.shape(), count(stats, query, "residual"), 1e3)
    assert stale.bound(*arguments, found.shifts, 1e3).exact >= now.exact * (1 - 1e-8)


def test_many_changes_are_still_used_since_their_amount_decides_nothing(stats: Collector) -> None:
    stats.collect("client", "purchase", "region")
    query = stats.query(JOIN)
    stats.admin.execute("update purchase set p_amount = 0")
    stats.admin.execute(
        "insert into purchase select i, 1, 1, '2024-01-01' from generate_series(5000, 9999) i"
    )
    found = stats.load(query, "elastic")
    assert found is not None
    assert max(found.shifts) == 7000


@pytest.mark.parametrize(
    "statement",
    [
        "alter table client rename column c_region to c_place",
        "alter table client rename to person",
        "alter table client alter c_region type bigint",
        "alter table client disable trigger dpsql_update",
        "truncate purchase, client",
        "select dp.drop_statistics('client')",
        "select dp.unprotect('client')",
    ],
)
def test_statistics_of_an_altered_relation_are_not_used(stats: Collector, statement: str) -> None:
    stats.collect("client", "purchase", "region")
    query = stats.query(JOIN)
    assert stats.load(query, "elastic") is not None
    stats.admin.execute(statement)
    if "rename to" in statement:  # the same rows under another name
        assert stats.load(query, "elastic") is not None
    else:
        assert stats.load(query, "elastic") is None


def test_a_dropped_relation_leaves_nothing_that_is_used(stats: Collector) -> None:
    stats.collect("client", "purchase", "region")
    stats.owner.execute("select dp.keep_statistics(%s)", (WIDE,))
    query = stats.query(WIDE)
    stats.admin.execute("drop table purchase")
    assert stats.load(query, "elastic") is None
    stats.owner.execute("select dp.refresh_statistics('client')")
    with pytest.raises(psycopg.Error, match="does not exist"):
        stats.owner.execute("select dp.refresh_statistics('purchase')")
    assert stats.admin.execute(
        "select count(*) from dp.statistics where kind = 'boundary'"
    ).fetchone() == (0,)


def test_an_empty_table_and_all_null_keys_have_frequencies(stats: Collector) -> None:
    stats.admin.execute("create table n (a int, b text, c json)")
    stats.admin.execute("insert into n values (null, null), (null, null), (null, 'x')")
    stats.admin.execute("select dp.protect('n'); select dp.collect_statistics('n')")
    stats.admin.execute("select dp.refresh_statistics('n')")
    show = "select identity, value::int from dp.statistics where 'n' = any (relations) order by 1"
    oid = stats.admin.execute("select 'n'::regclass::oid::text").fetchone()[0]
    shown = "select replace(identity, %s, ''), value::int from dp.owned_statistics() where identity like %s order by identity collate \"C\""
    found = stats.admin.execute(shown, (oid, oid + "[%")).fetchall()
    assert found == [('["a"]', 0), ('["b"]', 1), ("[]", 3)]
    stats.admin.execute("delete from n")
    stats.admin.execute("select dp.refresh_statistics('n')")
    assert [v for _, v in stats.admin.execute(shown, (oid, oid + "[%")).fetchall()] == [0, 0, 0]
    assert stats.admin.execute(show).fetchall() == []  # its name is public.n


def test_the_view_shows_an_owner_his_own(stats: Collector) -> None:
    stats.collect("client")
    stats.admin.execute("create table other (a int); select dp.protect('other');"
                        " select dp.collect_statistics('other')")  # fmt: skip
    stats.admin.execute("select dp.refresh_statistics('other')")
    seen = stats.owner.execute("select distinct relations, changes from dp.statistics").fetchall()
    assert seen == [(["public.client"], 0)]
    assert stats.admin.execute(
        "select count(distinct relations) from dp.statistics"
    ).fetchone() == (2,)
    stats.admin.execute("alter table client disable trigger dpsql_insert")
    assert stats.owner.execute("select distinct changes from dp.statistics").fetchall() == [(None,)]


HIDDEN = [
    "select * from dp.statistics",
    "select * from dp.owned_statistics()",
    "select * from dp.statistic",
    "select * from dp.change",
    "select * from dp.changed_key",
    "select * from dp.measurement",
    "select * from dp.measured_relation",
    "select * from dp.kept_query",
    "insert into dp.change (relation, inserted, updated) values (1, 1, 1)",
    "select dp.statistics_shift(1, 'client'::regclass)",
    "select dp.measure_statistics('client'::regclass, '[]')",
    "select dp.refresh_statistics('client')",
    "select dp.collect_statistics('client')",
    "select dp.drop_statistics('client')",
    "select dp.keep_statistics('select dp_count(*) from client')",
    "select dp.schedule_refresh('client', '0 0 * * *')",
    "select dp_count(*) from dp.statistic",
]


@pytest.mark.parametrize("statement", HIDDEN)
def test_analysts_see_nothing(stats: Collector, statement: str) -> None:
    stats.collect("client")
    with pytest.raises(psycopg.Error) as caught:
        stats.shop.sql(statement, user="alice")
    assert caught.value.sqlstate in ("42501", "PD012")


def test_other_owners_may_not_refresh_nor_keep(stats: Collector) -> None:
    stats.collect("client", "purchase", "region")
    stats.admin.execute("grant dp_owner to mallory")
    mallory = stats.shop.connect(user="mallory")
    for call in (
        "dp.refresh_statistics('client')",
        "dp.collect_statistics('client')",
        "dp.drop_statistics('client')",
        "dp.schedule_refresh('client', '0 0 * * *')",
        "dp.keep_statistics('select dp_count(*) from client')",
    ):
        with pytest.raises(psycopg.Error) as caught:
            mallory.execute(f"select {call}")  # type: ignore[call-overload]
        assert caught.value.sqlstate == "PD070", call
    assert mallory.execute("select * from dp.statistics").fetchall() == []
    stats.admin.execute("revoke dp_owner from mallory")


def test_dropping_statistics_takes_the_triggers_away(stats: Collector) -> None:
    stats.collect("client")
    stats.owner.execute("select dp.drop_statistics('client')")
    left = "select count(*) from pg_trigger where tgname like 'dpsql%'"
    assert stats.admin.execute(left).fetchone() == (0,)
    stats.admin.execute("update client set c_kind = 'a'")
    for table in ("change", "changed_key", "statistic", "measurement", "measured_relation"):
        assert stats.admin.execute(f"select count(*) from dp.{table}").fetchone() == (0,), table


def test_wanted_covers_every_method_of_the_all_changing_shape(stats: Collector) -> None:
    query = stats.query(WIDE)
    shape, numbers = query.shape(), stale.numbering(query)
    assert isinstance(shape, Shape)
    both = wanted(query, ["residual", "elastic"])
    assert both >= stale.required(shape, numbers, "residual")
    assert both >= stale.required(shape, numbers, "elastic")


@pytest.mark.parametrize(
    ("columns", "warned"),
    [
        ("k int primary key", False),
        ("k text, l date, primary key (k, l)", False),
        ("k int", True),
        ("k numeric primary key", True),
        ("k int unique not null", True),
    ],
)
def test_owners_are_warned_where_updates_of_a_row_cannot_be_told(
    database: Any, columns: str, warned: bool
) -> None:
    admin = database.connect()
    said: list[str] = []
    admin.add_notice_handler(lambda notice: said.append(str(notice.message_primary)))
    admin.execute(f"create table t ({columns}); select dp.protect('t')")
    admin.execute("select dp.collect_statistics('t')")
    assert any("has no primary key" in text for text in said) is warned
    said.clear()
    admin.execute(f"create table p ({columns}); select dp.declare_public('p')")
    admin.execute("select dp.collect_statistics('p')")
    assert not any("has no primary key" in text for text in said)
