"""Facts are kept for one version of the catalogue only."""

from __future__ import annotations

import pytest

from dpsql.engine.facts import MAX_FACTS, Facts
from dpsql.query.catalog import Circumstances


def here(version: int | None) -> Circumstances:
    return Circumstances("UTC", 1, version)


def looked_up(*calls: Circumstances | None, key: str = "k") -> list[int]:
    """Return what each of several calls of a session gets, of facts that are numbered."""
    kept: dict[object, tuple[int, object]] = {}
    numbers = iter(range(len(calls)))
    return [Facts(kept, call).once(key, lambda: next(numbers)) for call in calls]


def test_a_fact_is_kept_while_nothing_changes() -> None:
    assert looked_up(here(7), here(7), here(7)) == [0, 0, 0]


def test_a_change_ends_it_for_ever() -> None:
    assert looked_up(here(7), here(8), here(7), here(7)) == [0, 1, 2, 2]


@pytest.mark.parametrize("unknown", [None, here(None)])
def test_where_the_version_is_unknown_nothing_is_kept_or_used(
    unknown: Circumstances | None,
) -> None:
    assert looked_up(unknown, unknown, here(7), unknown) == [0, 1, 2, 3]


def test_a_result_is_kept_if_its_finder_says_so() -> None:
    facts, found = Facts({}, here(7)), iter(range(9))
    kept = [facts.once("k", lambda: next(found), keeps=lambda n: n == 1) for _ in range(4)]
    assert kept == [0, 1, 1, 1]


def test_errors_are_not_kept() -> None:
    facts, raised = Facts({}, here(7)), 0

    def find() -> None:
        raise ValueError

    for _ in range(2):
        try:
            facts.once("k", find)
        except ValueError:
            raised += 1
    assert (raised, facts.kept) == (2, {})


def test_the_number_of_facts_is_bounded() -> None:
    facts = Facts({}, here(7))
    for i in range(MAX_FACTS + 10):
        facts.once(i, lambda: 0)
    assert len(facts.kept) == MAX_FACTS
    assert (MAX_FACTS + 9) in facts.kept
