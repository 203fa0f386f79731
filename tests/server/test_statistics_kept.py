"""Questions whose statistics are kept: taken, shown, taken back."""

from __future__ import annotations

import psycopg
import pytest

from tests.server.collecting import WIDE, Collector


def test_keeping_is_taken_back_and_refuses_what_has_no_boundaries(stats: Collector) -> None:
    stats.collect("client", "purchase", "region")
    for text in ("select dp_count(*) from region", "select 1"):
        with pytest.raises(psycopg.Error) as caught:
            stats.owner.execute("select dp.keep_statistics(%s)", (text,))
        assert str(caught.value.sqlstate).startswith("PD01"), text
    for _ in range(2):
        stats.owner.execute("select dp.keep_statistics(%s)", (WIDE,))
    stats.owner.execute("select dp.refresh_statistics('client')")
    assert stats.owner.execute(
        "select count(distinct kept_question) from dp.statistics"
    ).fetchone() == (1,)
    stats.owner.execute("select dp.unkeep_statistics(%s)", (WIDE,))
    assert stats.load(stats.query(WIDE)) is None
    with pytest.raises(psycopg.Error, match="no statistics are kept"):
        stats.owner.execute("select dp.unkeep_statistics(%s)", (WIDE,))


KEPT = "select query, relations, kept_by, taken_at is not null, problem from dp.kept_questions"


def test_a_kept_question_is_seen_before_it_is_refreshed(stats: Collector) -> None:
    stats.owner.execute("select dp.collect_statistics('client'), dp.collect_statistics('purchase')")
    stats.owner.execute("select dp.keep_statistics(%s)", (WIDE,))
    ((text, relations, keeper, taken, problem),) = stats.owner.execute(KEPT).fetchall()
    assert "dp_count(*)" in text
    assert (sorted(relations), keeper, taken) == (
        [f"public.{r}" for r in ("client", "purchase", "region")],
        "owner1",
        False,
    )
    assert problem == "changes of public.region are not counted: SELECT dp.collect_statistics(...)"
    stats.owner.execute("select dp.collect_statistics('region')")
    assert stats.owner.execute(KEPT).fetchall()[0][4].startswith("no refresh of its relations")
    stats.owner.execute("select dp.refresh_statistics('client')")
    assert stats.owner.execute(KEPT).fetchall()[0][3:] == (True, None)
    stats.admin.execute("grant dp_owner to mallory")
    try:
        mallory = stats.shop.connect(user="mallory")
        assert mallory.execute(KEPT).fetchall() == []
        for argument in (text, 1):
            with pytest.raises(psycopg.Error) as caught:
                mallory.execute("select dp.unkeep_statistics(%s)", (argument,))
            assert caught.value.sqlstate in ("PD040", "PD070")
        assert len(stats.owner.execute(KEPT).fetchall()) == 1
    finally:
        stats.admin.execute("revoke dp_owner from mallory")
    with pytest.raises(psycopg.Error) as denied:
        stats.shop.sql(KEPT, user="alice")
    assert denied.value.sqlstate == "42501"


@pytest.mark.parametrize("by", ["number", "text"])
def test_a_question_that_means_nothing_any_more_is_taken_back(stats: Collector, by: str) -> None:
    stats.owner.execute("select dp.keep_statistics(%s)", (WIDE,))
    ((number, text),) = stats.owner.execute("select question, query from dp.kept_questions")
    stats.admin.execute("alter table region rename to elsewhere")
    with pytest.raises(psycopg.Error) as caught:
        stats.owner.execute("select dp.unkeep_statistics(%s)", (WIDE,))
    assert caught.value.sqlstate == "42P01"
    stats.owner.execute("select dp.unkeep_statistics(%s)", (number if by == "number" else text,))
    assert stats.owner.execute(KEPT).fetchall() == []
    for argument in (number, None):
        with pytest.raises(psycopg.Error) as missing:
            stats.owner.execute("select dp.unkeep_statistics(%s::integer)", (argument,))
        assert missing.value.sqlstate == "PD040"


def test_questions_of_dropped_relations_are_forgotten(stats: Collector) -> None:
    stats.collect("client", "purchase", "region")
    stats.owner.execute("select dp.keep_statistics(%s)", (WIDE,))
    stats.owner.execute("select dp.refresh_statistics('client')")
    stats.owner.execute(
        "alter table client drop constraint client_c_region_fkey; drop table region"
    )
    assert "was dropped" in stats.owner.execute(KEPT).fetchall()[0][4]
    stats.owner.execute("select dp.refresh_statistics('client')")
    assert stats.owner.execute(KEPT).fetchall() == []
    assert stats.admin.execute("select count(*) from dp.kept_query").fetchone() == (0,)
    left = "select count(*) from dp.statistic where kept is not null"
    assert stats.admin.execute(left).fetchone() == (0,)


def test_a_kept_question_has_no_parameters(stats: Collector) -> None:
    with pytest.raises(psycopg.Error) as caught:
        psycopg.ClientCursor(stats.owner).execute(
            "select dp.keep_statistics('select dp_count(*) from client where c_id = $1')"
        )
    assert caught.value.diag.message_hint == "Write the value itself in the place of $1."
