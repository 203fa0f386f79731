"""Groups of large declared domains are listed so that a cancel is noticed."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from dpsql.engine.groups import MAX_GROUPS, public_groups
from dpsql.errors import NotAnswerable
from dpsql.model import GroupDomain


class Domains:
    """A database with domains of so many values; a cancel comes at the n-th moment for one."""

    def __init__(self, sizes: dict[str, int], cancelled: int | None = None) -> None:
        self.sizes, self.cancelled, self.most, self.moments = sizes, cancelled, 0, 0

    def stream(self, sql: str, size: int) -> Iterator[list[tuple[object, ...]]]:
        for first in range(0, self.sizes[sql], size):
            self.tick()
            self.most = max(self.most, size)
            yield [(n,) for n in range(first, min(first + size, self.sizes[sql]))]

    def tick(self) -> None:
        self.moments += 1
        if self.moments == self.cancelled:
            raise KeyboardInterrupt


def question(*domains: str) -> Any:
    return SimpleNamespace(
        group_keys=domains,
        group_domains=tuple(GroupDomain((n,), name, sql=name) for n, name in enumerate(domains)),
    )


def test_groups_are_all_combinations_of_the_values_in_order() -> None:
    found = public_groups(question("a", "b"), Domains({"a": 2, "b": 3}))  # type: ignore[arg-type]
    assert found == [(a, b) for a in "01" for b in "012"]


def test_too_many_groups_are_refused_before_they_are_made() -> None:
    database = Domains({"a": MAX_GROUPS, "b": 2})
    with pytest.raises(NotAnswerable, match="too many groups"):
        public_groups(question("a", "b"), database)  # type: ignore[arg-type]


@pytest.mark.parametrize("moment", [2, 20, 60])
def test_a_cancel_is_noticed_while_groups_are_listed(moment: int) -> None:
    """No more than 10,000 rows or groups lie between two moments."""
    database = Domains({"a": 500_000, "b": 1}, moment)
    with pytest.raises(KeyboardInterrupt):
        public_groups(question("a", "b"), database)  # type: ignore[arg-type]
    assert database.most <= 10_000
