"""What is copied: tables, their columns and keys, and in which order they are generated.

Public facts of the catalogue and declarations only (PRIVACY.md section 2 (c)).  `planned` turns
tables into a plan; nothing here knows SQL beyond names and expressions that it is given.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Use(Enum):
    """How the values of a column come about."""

    KEY = "key"  #: made up: different in every row
    REFERENCE = "reference"  #: of a foreign key: the value of the parent's row
    ATTRIBUTE = "attribute"  #: a level of a public domain, drawn
    MISSING = "missing"  #: NULL, because nothing public is known of its values
    DEFAULT = "default"  #: the column's default
    GENERATED = "generated"  #: computed by the server from the others


@dataclass(frozen=True, slots=True)
class Attribute:
    """What is learnt of a column.

    Attributes
    ----------
    column : str
        Its name.
    expression : str
        SQL over the column, unqualified, whose levels are public: the column itself, or its bin.
    bins : tuple of str
        Where the expression numbers bins from 1: their edges, one more than there are bins, as
        texts of the column's type; a value of bin ``i`` lies in ``[bins[i - 1], bins[i])``.
    """

    column: str
    expression: str
    bins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; ``type_name`` as ``format_type`` writes it with its modifier."""

    name: str
    number: int
    type_name: str
    not_null: bool
    default: str | None = None
    generated: bool = False
    identity: bool = False


@dataclass(frozen=True, slots=True)
class Unique:
    """A primary key or UNIQUE constraint or index over plain columns."""

    name: str
    columns: tuple[str, ...]
    primary: bool = False


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """A foreign key; ``parent`` is the OID of what it references."""

    name: str
    columns: tuple[str, ...]
    parent: int
    parent_columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A relation to copy, or, if it is public, to refer to.

    ``domains`` holds, for columns whose levels are public, what is learnt of them.
    """

    oid: int
    schema: str
    name: str
    columns: tuple[Column, ...]
    uniques: tuple[Unique, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    checks: tuple[str, ...] = ()
    public: bool = False
    domains: tuple[Attribute, ...] = ()


@dataclass(frozen=True, slots=True)
class Reference:
    """A foreign key that links are generated for.

    Attributes
    ----------
    key : ForeignKey
    parent : int
        Place of the referenced table in the plan; its own place for a self-reference.
    nullable : bool
        Whether a row may have none.
    unique : bool
        Whether a parent has one child at most, by a constraint.
    """

    key: ForeignKey
    parent: int
    nullable: bool
    unique: bool


@dataclass(frozen=True, slots=True)
class Planned:
    """A table of a plan.

    Attributes
    ----------
    table : Table
    uses : mapping as tuple of (str, Use)
        One for each column, in their order.
    attributes : tuple of Attribute
        What is learnt; empty for a public table that nothing but keys is known of.
    references : tuple of Reference
        In the order in which links are generated; none of a public table.
    """

    table: Table
    uses: tuple[tuple[str, Use], ...]
    attributes: tuple[Attribute, ...]
    references: tuple[Reference, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """Tables, every parent before its children; public ones among them."""

    tables: tuple[Planned, ...]
