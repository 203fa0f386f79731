"""Public facts that a question needs before its charge, kept while nothing changes them.

They follow from the system catalog and from declarations.  An entry is used again only at the same
count of changes (``sql/hook/state.c``), and its key contains the fingerprint of the question's
relations as the statement's own snapshot shows it.  The count can be late by the instant in which a
change is being committed.  In that instant only facts outside the fingerprint can be old, and they
are those of a question that came before the change.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar, cast

if TYPE_CHECKING:
    from dpsql.query.catalog import Circumstances

T = TypeVar("T")
MAX_FACTS = 512


@dataclass(slots=True)
class Facts:
    """What one call may use of the facts that its session keeps.

    ``here`` belongs to the snapshot of this call; ``None``: nothing is kept or used.
    """

    kept: dict[Hashable, tuple[int, object]] = field(default_factory=dict)
    here: Circumstances | None = None

    def once(self, key: Hashable, find: Callable[[], T]) -> T:
        """Return what ``find`` found under ``key`` at this count of changes, or find it now.

        Errors are not kept.  A result is kept only if the call's snapshot shows all changes that
        were counted.
        """
        here = self.here
        if here is None or here.state is None:
            return find()
        known = self.kept.get(key)
        if known is not None and known[0] == here.state:
            return cast("T", known[1])
        found = find()
        if here.new:
            self.kept.pop(key, None)
            while len(self.kept) >= MAX_FACTS:
                self.kept.pop(next(iter(self.kept)))
            self.kept[key] = (here.state, found)
        return found
