"""Facts before a charge are kept at one count of changes only."""

from __future__ import annotations

import pytest

from dpsql.engine.facts import MAX_FACTS, Facts
from dpsql.query.catalog import Circumstances


def here(state: int | None, new: bool = True) -> Circumstances:
    return Circumstances("UTC", 1, state, new)


def looked_up(*calls: Circumstances | None, key: str = "k") -> list[int]:
    """Return what each of several calls of a session gets, of facts that are numbered."""
    kept: dict[object, tuple[int, object]] = {}
    numbers = iter(range(len(calls)))
    return [Facts(kept, call).once(key, lambda: next(numbers)) for call in calls]


def test_a_fact_is_kept_while_nothing_changes() -> None:
    assert looked_up(here(7), here(7), here(7, new=False), here(7)) == [0, 0, 0, 0]


def test_a_change_ends_it_for_ever() -> None:
    assert looked_up(here(7), here(8), here(7), here(7)) == [0, 1, 2, 2]


@pytest.mark.parametrize("unknown", [None, here(None), here(None, new=False)])
def test_where_changes_are_not_counted_nothing_is_kept_or_used(
    unknown: Circumstances | None,
) -> None:
    assert looked_up(unknown, unknown, here(7), unknown) == [0, 1, 2, 3]


def test_an_old_snapshot_leaves_nothing_behind() -> None:
    assert looked_up(here(7, new=False), here(7), here(7)) == [0, 1, 1]


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
