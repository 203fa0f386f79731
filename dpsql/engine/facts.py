"""Public facts that a question needs before its charge, kept while nothing changes them.

The facts follow from the system catalog and from declarations.  An entry is used again only while
the count of changes (``sql/hook/state.c``) is the same.  Its key contains the fingerprint of the
question's relations in the statement's own snapshot.

The count is incremented an instant after other sessions can see a change.  In this instant only
facts that the fingerprint does not cover can be out of date.  A question that uses them is answered
as if it had come before the change.
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

    ``here`` is the state of the catalog in the snapshot of this call.  If it is ``None``, no fact
    is kept or used again.
    """

    kept: dict[Hashable, tuple[int, object]] = field(default_factory=dict)
    here: Circumstances | None = None

    def once(self, key: Hashable, find: Callable[[], T]) -> T:
        """Return the fact that is kept under ``key``, or call ``find`` and keep its result.

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
