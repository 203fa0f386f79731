"""What is copied: tables, their columns and keys, and in which order they are generated.

Public facts of the catalogue and declarations only (PRIVACY.md section 2 (c)).  `planned` turns
tables into a plan; nothing here knows SQL beyond names and expressions that it is given.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from dpsql.relation import show_name
from dpsql.synthesis.notes import Note


class Use(Enum):
    """How the values of a column come about."""

    KEY = "key"  #: made up: different in every row
    REFERENCE = "reference"  #: of a foreign key: the value of the parent's row
    ATTRIBUTE = "attribute"  #: a level of a public domain, drawn
    MISSING = "missing"  #: NULL, because nothing public is known of its values
    DEFAULT = "default"  #: the column's default
    GENERATED = "generated"  #: computed by the server from the others
    CONSTANT = "constant"  #: one value of its type in all rows, made up


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
        Two equal edges are one bin of that one value; the last edge may be beyond the type.
    nullable : bool
        Whether NULL is one of the levels.
    """

    column: str
    expression: str
    bins: tuple[str, ...] = ()
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; ``type_name`` as ``format_type`` writes it with its modifier.

    ``base`` is its type, or what a domain is over, as ``pg_type`` has it: ``int4``, ``varchar``.
    ``span`` is the first and the last value of an integer whose CHECK constraint is a range; the
    last one is 2^62 where there is none.
    ``values`` are the declared values of a foreign key's column; in a plan also those of a key that
    only such foreign keys refer to (`dpsql.synthesis.plan_values`).
    """

    name: str
    number: int
    type_name: str
    not_null: bool
    default: str | None = None
    generated: bool = False
    identity: bool = False
    base: str = ""
    span: tuple[int, int] | None = None
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unique:
    """A primary key or UNIQUE constraint or index over plain columns.

    ``room`` rows may be equal in the columns: more than one where a further column numbers them.
    """

    name: str
    columns: tuple[str, ...]
    primary: bool = False
    nulls_distinct: bool = True
    room: int = 1


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """A foreign key; ``parent`` is the OID of what it references, ``parent_name`` is to be shown.

    ``problem`` says why rows may violate it, which then is not copied.  ``full``: MATCH FULL.
    ``protected``: the parent is a protected relation.
    """

    name: str
    columns: tuple[str, ...]
    parent: int
    parent_columns: tuple[str, ...]
    parent_name: str = ""
    problem: str | None = None
    full: bool = False
    protected: bool = False


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

    @property
    def shown(self) -> str:
        """The qualified name for a person's eyes."""
        return show_name(self.schema, self.name)

    def column(self, name: str) -> Column:
        """Return the column of that name."""
        return next(c for c in self.columns if c.name == name)


@dataclass(frozen=True, slots=True)
class Reference:
    """A foreign key that links are generated for.

    Attributes
    ----------
    key : ForeignKey
    parent : int
        Place of the referenced table in the plan; its own place for a self-reference.
    nullable : bool
        Whether a row may have none: then those of its columns are NULL that can be and that no
        reference before it has.
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
    implied : tuple of ForeignKey
        Hold in the copy without links of their own, since the references do.
    """

    table: Table
    uses: tuple[tuple[str, Use], ...]
    attributes: tuple[Attribute, ...]
    references: tuple[Reference, ...] = ()
    implied: tuple[ForeignKey, ...] = ()

    def use(self, column: str) -> Use:
        """Tell how the values of a column come about."""
        return dict(self.uses)[column]

    @property
    def most(self) -> int | None:
        """The largest number of rows: that of a key's declared values; None: any number."""
        keys = [c for c in self.table.columns if c.values and self.use(c.name) is Use.KEY]
        return min((len(c.values) for c in keys), default=None)

    def shared(self, k: int) -> tuple[str, ...]:
        """Return the columns of a reference that say something without it.

        Those of references before it; of a reference of the table to itself also those that name
        themselves, as the tenant does in ``(tenant, boss) REFERENCES staff (tenant, id)``.
        """
        itself = self.table.oid
        order = sorted(range(len(self.references)), key=lambda r: self._parent(r) == itself)
        before = {c for r in order[: order.index(k)] for c in self.references[r].key.columns}
        own = {c for c, use in self.uses if use is not Use.REFERENCE}
        return tuple(c for c in self.references[k].key.columns if c in before | own)

    def _parent(self, k: int) -> int:
        return self.references[k].key.parent

    def drawn(self, unique: Unique) -> tuple[str, ...]:
        """Return the columns by which rows must be made different; none where they are already.

        Where NULLs are not distinct, a column that is NULL in all rows tells none apart.
        """
        found = {c: self.use(c) for c in unique.columns}
        kept = tuple(c for c, use in found.items() if use in (Use.REFERENCE, Use.ATTRIBUTE))
        left = {use for c, use in found.items() if c not in kept}
        return kept if left <= ({Use.MISSING} if not unique.nulls_distinct else set()) else ()

    def bounded(self, unique: Unique) -> Unique | None:
        """Return how many rows a key allows for the rest of its columns, if one numbers them.

        That is a made-up column of a range, as ``dp.set_degree_bound`` adds it, in this key alone.
        """
        numbers = [c for c in unique.columns if self.use(c) is Use.KEY]
        rest = tuple(c for c in unique.columns if c not in numbers)
        if len(numbers) != 1 or not rest:
            return None
        span = self.table.column(numbers[0]).span
        alone = sum(numbers[0] in u.columns for u in self.table.uniques) == 1
        known = all(self.use(c) in (Use.REFERENCE, Use.ATTRIBUTE) for c in rest)
        if span is None or not alone or not known:
            return None
        return replace(unique, columns=rest, room=max(0, span[1] - span[0] + 1))

    def unsure(self, unique: Unique) -> bool:
        """Whether rows may be equal in its columns: nothing that is generated tells them apart."""
        found = {self.use(c) for c in unique.columns}
        if Use.KEY in found or self.drawn(unique):
            return False
        return not (Use.MISSING in found and unique.nulls_distinct)


@dataclass(frozen=True, slots=True)
class Plan:
    """Tables, every parent before its children; public ones among them.

    ``notes`` say what the copy does not have of the original, for whoever asks for it.
    """

    tables: tuple[Planned, ...]
    notes: tuple[Note, ...] = ()
