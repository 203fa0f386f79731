"""Public facts that a question needs before its charge, kept while nothing changes them.

The facts follow from the system catalogue and from declarations.  An entry is used again only by
statements whose snapshot shows the version in which it was found (``sql/hook/version.c``).
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
    """The facts that a session keeps, as one call uses them.

    ``here`` holds the version of the catalogue that the snapshot of this call shows.  If it is
    ``None``, no fact is kept or used again.
    """

    kept: dict[Hashable, tuple[int, object]] = field(default_factory=dict)
    here: Circumstances | None = None

    def once(
        self, key: Hashable, find: Callable[[], T], *, keeps: Callable[[T], bool] = lambda _: True
    ) -> T:
        """Return the fact that is kept under ``key``, or call ``find`` and keep its result.

        Errors are not kept, nor are results of which ``keeps`` is false.
        """
        version = None if self.here is None else self.here.version
        if version is None:
            return find()
        known = self.kept.get(key)
        if known is not None and known[0] == version:
            return cast("T", known[1])
        found = find()
        if not keeps(found):
            return found
        self.kept.pop(key, None)
        while len(self.kept) >= MAX_FACTS:
            self.kept.pop(next(iter(self.kept)))
        self.kept[key] = (version, found)
        return found
