"""Typed expressions over columns of occurrences and over attributes.  Standard library only.

`dpsql.query.ir` writes them as SQL.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Expr:
    """A node.

    ============ ======================================== =========================
    kind         data                                     args
    ============ ======================================== =========================
    col          (occurrence, name, not null, full type),
                 and True where its own type is a domain
    const        text in output format, ``None``: NULL
    literal      whole number, or text of a type of pg_catalog
    op           operator                                 one or two
    fn           function of pg_catalog                   any
    cast         full target type                         one
    narrow       type, operator and text of the lower
                 bound, text of the upper bound           one numeric
    and, or                                               two or more
    not                                                   one
    is           ``NULL``, ``NOT TRUE``, ...              one
    distinct                                              two
    in           negated                                  one, then constants
    place        its place among others                   one, then constants
    case                                                  (when, then)*, else
    guard                                                 condition, value
    coalesce, greatest, least, nullif                     some
    extract      field                                    one
    collate      name parts                               one
    array                                                 its elements
    attribute    number
    output       subquery, column
    sql          text of `dpsql.sqltree.sql`, in which
                 ``:a``, ``:b``, ... are arguments        any
    tree         tree of SQL
    withheld     relation, name, why
    named        a name as a person reads it, in no SQL
    ============ ======================================== =========================
    """

    kind: str
    type: str
    args: tuple[Expr, ...] = ()
    data: Hashable = None

    def walk(self) -> Iterator[Expr]:
        """Yield the node and everything below it."""
        yield self
        for argument in self.args:
            yield from argument.walk()

    def columns(self) -> frozenset[tuple[int, str]]:
        """All (occurrence, column) pairs that are read."""
        return frozenset(
            e.data[:2]  # type: ignore[index]
            for e in self.walk()
            if e.kind == "col"
        )

    def occurrences(self) -> frozenset[int]:
        """All occurrences that are read."""
        return frozenset(occurrence for occurrence, _ in self.columns())

    def attributes(self) -> frozenset[int]:
        """All attributes that are read."""
        return frozenset(int(e.data) for e in self.walk() if e.kind == "attribute")  # type: ignore[call-overload]
