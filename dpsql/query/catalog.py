"""What the analyser asks the server: facts about the schema, never about data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from dpsql.relation import Relation

if TYPE_CHECKING:
    from dpsql.sqltree import Tree


@dataclass(frozen=True, slots=True)
class Function:
    """A row of ``pg_proc``, as much as is needed."""

    schema: str
    name: str
    language: str
    kind: str  # pg_proc.prokind: f, a, w, p
    volatility: str  # pg_proc.provolatile: i, s, v
    returns_set: bool


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a statement's meaning depends on beside its text.

    ``version`` is the version of the system catalogue and of declarations that the statement's
    snapshot shows (``sql/hook/version.c``); ``None``: it is not known, so that nothing is kept.
    """

    zone: str
    asker: int
    version: int | None


class Catalog(Protocol):
    """Implemented by the server layer; all answers are public facts.

    ``type_name``, schema and relation names are as ``format_type`` and ``pg_get_querydef``
    write them under ``search_path = pg_catalog``.
    """

    @property
    def time_zone(self) -> str:
        """The session's ``TimeZone``, under which the query will be counted."""
        ...

    def relation(self, schema: str, name: str) -> Relation | None:
        """Return a protected or public relation, ``None`` if nobody declared it."""
        ...

    def view(self, schema: str, name: str) -> Mapping[str, Any] | None:
        """Return ``dp.analyze`` of a declared view's definition, ``None`` if it is none."""
        ...

    def enum(self, type_name: str) -> tuple[str, ...] | None:
        """Return the labels of an enum type in order, or ``None`` for any other type."""
        ...

    def function(self, oid: int) -> Function | None:
        """Return facts about a function."""
        ...

    def deterministic(self, collations: Sequence[int]) -> bool:
        """Tell whether all collations compare equal only what is equal byte for byte."""
        ...

    def evaluate(self, value: Tree) -> str | None:
        """Return a constant expression's value as text; pinned settings, no relation."""
        ...
