"""The catalog as the engine uses it: facts of the catalog, analysis, fingerprints and locks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from dpsql.query import catalog


class Catalog(catalog.Catalog, Protocol):
    """Implemented by the server layer; all answers are public facts.

    Attributes
    ----------
    seen : set of int
        OIDs of the relations and views that were looked up since the catalog was made.
    lasting : bool
        Whether everything that was looked up comes from declarations or from the system catalog.
    of_rows : bool
        Whether rows of public relations that list a domain were looked up.
    """

    seen: set[int]
    lasting: bool
    of_rows: bool

    def analyze(self, text: str, parameters: Sequence[str | None] | None = None) -> dict[str, Any]:
        """Let the server analyse a statement with the rights of the role in effect.

        Parameters
        ----------
        text : str
            One statement.
        parameters : sequence of str or None
            Typed literals for ``$1 ...``.
        """
        ...

    def analyze_counting(self, text: str) -> dict[str, Any]:
        """Analyse a statement of the library's own, with its rights, without running it."""
        ...

    def analyze_kept(self, question: int) -> dict[str, Any]:
        """Analyse a question that is kept for statistics, with the rights of its keeper."""
        ...

    def circumstances(self) -> catalog.Circumstances:
        """Return all, except its text, on which the meaning of a statement depends."""
        ...

    def immutable(self, functions: Sequence[int]) -> bool:
        """Whether none of the functions depends on settings or on the time."""
        ...

    def folds(self, functions: Sequence[int]) -> bool:
        """Whether analysis may evaluate one that depends on time, settings or others' code."""
        ...

    def fingerprint(self, oids: Sequence[int]) -> str:
        """Return a token that changes with the definition of these relations and declarations."""
        ...

    def types_among(self, oids: Sequence[int]) -> list[int]:
        """Return those of the objects that are types."""
        ...

    def confirm(self, oids: Sequence[int], token: str) -> None:
        """Refuse if the `fingerprint` of the current declarations is not ``token``.

        Raises
        ------
        DeclarationsChanged
            When a relation, type or collation was changed meanwhile.
        """
        ...

    def lock(self, oids: Sequence[int]) -> None:
        """Lock relations as analysis does, and take all other locks that reading them can need."""
        ...

    def may_name(self, oids: Sequence[int]) -> bool:
        """Whether the role in effect may use the schemas of these relations."""
        ...

    def owns(self, role: int, oids: Sequence[int]) -> bool:
        """Whether the role has the rights of the owner of each relation; superusers have them."""
        ...
