"""Frozen records of the catalogue: declared relations, and names.  Standard library only."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_PLAIN = re.compile("[a-z_][a-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a declared relation, as the catalogue shows it."""

    name: str
    type_oid: int
    type_name: str  # format_type() under search_path = pg_catalog, with typmod
    not_null: bool
    #: key in `dpsql.query.refusals` of why questions must not read it; empty if they may
    withheld: str = ""
    domain: bool = False  # the column's type is a domain; ``type_name`` is its base type


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """A validated, enforced, immediate, non-deferrable foreign key (PRIVACY.md section 1)."""

    columns: tuple[str, ...]
    target_oid: int
    target_columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Domain:
    """A declared (public) domain of a column.

    ``values`` are texts in the column type's output format, in declared order;
    ``includes_null`` says whether NULL is a member.  A range has ``lower`` and ``upper`` in the
    same format; one that is not ``listed`` has no members: it bounds sums, and no groups.
    ``type_name`` is the column's when the domain was declared, and now.  Other values than the
    listed ones count as ``other``, if it is declared (`dpsql.query.others`).
    """

    column: str
    values: tuple[str, ...]
    includes_null: bool
    lower: str | None = None
    upper: str | None = None
    type_name: str = ""
    listed: bool = True
    #: not shown: the texts that identify releases are those of before
    other: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Hop:
    """From a row to its one parent: ``columns`` equal the parent's key ``parent_columns``."""

    columns: tuple[str, ...]
    schema: str
    name: str
    parent_columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UnitPath:
    """How a row finds the privacy unit that it belongs to (PRIVACY.md section 1).

    ``hops`` lead to the parent whose ``column`` names the unit; without hops it is the row's own.
    ``loose`` tells why a row may find none on the way, ``excluded`` says that the owner declared
    such rows to belong to nobody, and never to be counted.
    """

    root: int
    hops: tuple[Hop, ...]
    column: str
    loose: tuple[str, ...] = ()
    excluded: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """Where some rows of a relation are: a foreign table, or a partition that is kept here."""

    oid: int
    schema: str
    name: str
    server: int = 0  # of a foreign table, its server

    @property
    def sql(self) -> str:
        """The qualified, quoted name."""
        return f"{quote_identifier(self.schema)}.{quote_identifier(self.name)}"


@dataclass(frozen=True, slots=True)
class Level:
    """How parts of parts are cut, to some depth: ``places`` says of each part which one it is in.

    ``layout`` is equal for relations that are cut in one way so far.
    """

    cut_by: tuple[str, ...]
    layout: str
    places: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Relation:
    """A declared base relation.

    ``keys`` are column sets with a valid, immediate, non-partial, non-expression unique
    index whose columns are NOT NULL (or whose NULLs cannot join); never inherited or foreign.
    ``root`` is the stable ledger identity of a private relation, 0 for a public one.
    ``units`` are the paths to the privacy units that a row belongs to; without any, rows are
    protected one by one.
    """

    oid: int
    schema: str
    name: str
    private: bool
    root: int
    columns: tuple[Column, ...]
    keys: tuple[tuple[str, ...], ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    domains: tuple[Domain, ...] = ()
    kind: str = "r"  # pg_class.relkind
    heuristic: bool = False  # its owner allows methods without proof
    units: tuple[UnitPath, ...] = ()
    #: each reading may show another state: what Citus keeps, wrappers without snapshots
    by_steps: bool = False
    #: all that rows are in, if some of it is foreign, in an order that ``layout`` fixes
    parts: tuple[Part, ...] = ()
    #: the columns that tell the part of a row, and how: equal for relations cut in one way
    cut_by: tuple[str, ...] = ()
    layout: str = field(default="", repr=False)
    #: of parts of parts, from the largest ones on
    levels: tuple[Level, ...] = field(default=(), repr=False)
    #: where parts are joined in groups, the group of each; else each part is one of its own
    places: tuple[int, ...] = field(default=(), repr=False)
    #: what is read in its place, in parentheses (`dpsql.query.far_parents`)
    source: str = field(default="", repr=False)

    @property
    def roots(self) -> tuple[int, ...]:
        """Ledger identities of all units that a row may belong to, or of the relation itself."""
        return tuple(sorted({path.root for path in self.units})) or (self.root,)

    @property
    def sql(self) -> str:
        """The qualified, quoted name, or what is read in its place."""
        own = f"{quote_identifier(self.schema)}.{quote_identifier(self.name)}"
        return self.source or own

    def place(self, part: int) -> int:
        """Return the group of parts that a part is joined in."""
        return self.places[part] if self.places else part

    @property
    def has_pages(self) -> bool:
        """Whether its rows lie in pages of its own, so that a part of them can be read."""
        return self.kind in ("r", "m") and not self.by_steps

    @property
    def shown(self) -> str:
        """The qualified name for a person's eyes, quoted where it must be."""
        return show_name(self.schema, self.name)


#: The modifier of a type.
MODIFIER = re.compile(r"\(([\d,-]+)\)")


def base(full: str) -> str:
    """Drop the type modifier: ``character(5)`` is ``bpchar``, ``numeric(10,2)`` ``numeric``."""
    name = MODIFIER.sub("", full) if "(" in full and not full.startswith('"') else full
    return "bpchar" if name == "character" else name


def quote_identifier(name: str) -> str:
    """Quote an SQL identifier, always."""
    return '"' + name.replace('"', '""') + '"'


def show_name(*parts: str) -> str:
    """Write a qualified name for a person, quoted only where it must be.

    Key words stay bare, which ``regclass`` reads as names.
    """
    return ".".join(p if _PLAIN.fullmatch(p) else quote_identifier(p) for p in parts)
