"""Syntax trees of the statements that PostgreSQL itself deparsed, with source positions.

Positions are 1-based character offsets into the deparsed text and take no part in
comparisons, so equal expressions at different places are equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast


@dataclass(frozen=True, slots=True)
class Node:
    """An expression.

    ``kind`` says what ``value`` holds:

    ========== =================================================
    name       the parts of a column reference
    const      the text of a constant (``None`` for NULL)
    cast       the type's name; one argument
    call       (schema or "", name); ``flags`` for ``*``, DISTINCT, OVER, ...
    op         an operator; one or two arguments
    and or     nothing; two or more arguments
    not        nothing; one argument
    is         ``NULL``, ``NOT NULL``, ``TRUE``, ``NOT TRUE``, ...
    distinct   nothing; ``a IS DISTINCT FROM b``
    any        (operator, ``ANY`` or ``ALL``)
    array      nothing
    case       whether there is an operand; operand, (when, then)*, else
    collate    the collation's name parts
    sqlvalue   ``CURRENT_DATE`` and the like
    exists     the sub-query
    in_query   the sub-query; what is looked for
    ========== =================================================

    A constant's type is in ``type``, empty for bare numbers, booleans and NULL.
    """

    kind: str
    position: int = field(compare=False)
    value: object = None
    args: tuple[Node, ...] = ()
    type: str = ""
    flags: frozenset[str] = frozenset()

    def pair(self) -> tuple[str, str]:
        """Return ``value`` of the kinds that hold two strings."""
        first, second = cast("tuple[str, str]", self.value)
        return first, second

    def walk(self) -> Iterator[Node]:
        """Yield the node and everything below it."""
        yield self
        for argument in self.args:
            yield from argument.walk()


@dataclass(frozen=True, slots=True)
class Table:
    """A named relation or WITH query in FROM; ``schema`` is empty for the latter."""

    position: int
    schema: str
    name: str
    alias: str
    columns: tuple[str, ...] = ()
    only: bool = False


@dataclass(frozen=True, slots=True)
class Derived:
    """A sub-query in FROM."""

    position: int
    query: Select
    alias: str
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Join:
    """A join; ``using_alias`` is the alias of JOIN ... USING (...) AS x.

    ``outer`` is ``LEFT`` or ``RIGHT``, empty for inner and cross joins.
    """

    position: int
    left: FromItem
    right: FromItem
    on: Node | None = None
    using: tuple[str, ...] = ()
    using_alias: str = ""
    alias: str = ""
    columns: tuple[str, ...] = ()
    outer: str = ""


FromItem = Table | Derived | Join


@dataclass(frozen=True, slots=True)
class Target:
    """An output column."""

    expression: Node
    name: str


@dataclass(frozen=True, slots=True)
class SortKey:
    """One ORDER BY item; ``suffix`` is ``DESC``, ``NULLS LAST`` and the like."""

    expression: Node
    suffix: str


@dataclass(frozen=True, slots=True)
class With:
    """One common table expression."""

    name: str
    columns: tuple[str, ...]
    query: Select


@dataclass(frozen=True, slots=True)
class Select:
    """One SELECT without set operations.

    ``sets`` are its grouping sets, if it says so: CUBE and the like written out.
    """

    position: int
    targets: tuple[Target, ...]
    sources: tuple[FromItem, ...] = ()
    where: Node | None = None
    group: tuple[Node, ...] = ()
    grouped: bool = False
    having: Node | None = None
    order: tuple[SortKey, ...] = ()
    distinct: bool = False
    limit: Node | None = None
    offset: Node | None = None
    ctes: tuple[With, ...] = ()
    sets: tuple[tuple[Node, ...], ...] = ()
