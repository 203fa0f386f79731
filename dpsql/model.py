"""Frozen records that cross layers.  Standard library only.

The vocabulary of one query, from the catalogue to the numbers:

``Relation``     a declared relation with its columns, trusted keys, foreign keys
``JoinQuery``    one counting query: occurrences of relations joined on attributes
``Shape``        what is left of a ``JoinQuery`` when SQL is forgotten: pure sets
``Boundary``     a request for one maximum boundary ``T_E`` (or maximum frequency)
``Question``     a whole validated statement: counting queries plus free post-processing

An *attribute* is an integer: an equivalence class of join columns (``join=True``)
or a column/expression of one occurrence that something else needs, a group key or
a predicate that spans relations (``join=False``, "carried").
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

_PLAIN = re.compile("[a-z_][a-z0-9_]*")

#: Texts of a group's key values, ``None`` for NULL; ``()`` without GROUP BY.
Key = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a declared relation, as the catalogue shows it."""

    name: str
    type_oid: int
    type_name: str  # format_type() under search_path = pg_catalog, with typmod
    not_null: bool


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
    ``includes_null`` says whether NULL is a member.
    """

    column: str
    values: tuple[str, ...]
    includes_null: bool


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

    @property
    def roots(self) -> tuple[int, ...]:
        """Ledger identities of all units that a row may belong to, or of the relation itself."""
        return tuple(sorted({path.root for path in self.units})) or (self.root,)

    @property
    def sql(self) -> str:
        """The qualified, quoted name."""
        return f"{quote_identifier(self.schema)}.{quote_identifier(self.name)}"

    @property
    def shown(self) -> str:
        """The qualified name for a person's eyes, quoted where it must be."""
        return show_name(self.schema, self.name)


def quote_identifier(name: str) -> str:
    """Quote an SQL identifier, always."""
    return '"' + name.replace('"', '""') + '"'


def show_name(*parts: str) -> str:
    """Write a qualified name for a person, quoted only where it must be.

    Key words stay bare, which ``regclass`` reads as names.
    """
    return ".".join(p if _PLAIN.fullmatch(p) else quote_identifier(p) for p in parts)


@dataclass(frozen=True, slots=True)
class Attribute:
    """One variable of a counting query.

    ``type_name`` is the SQL type every use is cast to (so that int4 = int8 joins unify).
    ``join`` attributes equate at least two occurrences and are never NULL in a result;
    carried ones belong to one occurrence and may be NULL.
    """

    id: int
    type_name: str
    join: bool


@dataclass(frozen=True, slots=True)
class AttributeUse:
    """How an occurrence provides an attribute.

    ``sql`` is over its alias; ``column`` names the plain column when it is nothing but a
    column (keys apply only then).
    """

    attribute: int
    sql: str
    column: str | None


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One relation in the flattened FROM list, known in SQL by the alias ``r<index>``.

    ``filters`` are SQL conditions over that alias alone, total by construction
    (they cannot raise on any row); all must be true.
    """

    index: int
    relation: Relation
    uses: tuple[AttributeUse, ...]
    filters: tuple[str, ...] = ()

    @property
    def alias(self) -> str:
        """The alias that ``filters`` and ``uses`` are written over."""
        return f"r{self.index}"

    @property
    def attributes(self) -> frozenset[int]:
        """All attributes that the occurrence provides."""
        return frozenset(use.attribute for use in self.uses)


@dataclass(frozen=True, slots=True)
class Predicate:
    """A condition that spans occurrences; SQL over the column names ``a<attribute>``."""

    sql: str
    attributes: frozenset[int]
    occurrences: frozenset[int]


def same_values(source: str, target: str) -> bool:
    """Whether casting ``source`` to ``target`` keeps distinct values distinct, for certain."""
    if source == target or (source.startswith("character varying") and target == "text"):
        return True
    widths = {"smallint": 2, "integer": 4, "bigint": 8}
    return source in widths and widths[source] <= widths.get(target, 0)


@dataclass(frozen=True, slots=True)
class JoinQuery:
    """``SELECT groups, count(*) FROM occurrences WHERE ... GROUP BY groups``.

    ``occurrences[i].index == i`` and ``attributes[j].id == j``.  ``unit`` is the attribute that
    names the one privacy unit which a result belongs to, ``None`` under row neighbours.
    """

    occurrences: tuple[Occurrence, ...]
    attributes: tuple[Attribute, ...]
    predicates: tuple[Predicate, ...] = ()
    groups: tuple[int, ...] = ()
    unit: int | None = None

    def identifying_keys(self, occurrence: Occurrence) -> tuple[frozenset[int], ...]:
        """Trusted keys of an occurrence whose attributes really identify a row.

        A cast may merge values (bigint joined as double precision) unless it keeps the type
        or widens an integer; NULLs of a carried column repeat under a unique index.
        """
        columns = {column.name: column for column in occurrence.relation.columns}
        by_name: dict[str, int] = {}
        for use in occurrence.uses:
            if use.column is None or use.column not in columns:
                continue
            column, attribute = columns[use.column], self.attributes[use.attribute]
            if same_values(column.type_name, attribute.type_name) and (
                column.not_null or attribute.join
            ):
                by_name[use.column] = use.attribute
        return tuple(
            frozenset(by_name[name] for name in key)
            for key in occurrence.relation.keys
            if key and all(name in by_name for name in key)
        )

    def shape(self) -> Shape:
        """Forget SQL: what sensitivity formulas need, public facts only."""
        join = {a.id for a in self.attributes if a.join}
        physical: list[int | None] = []
        numbers: dict[int, int] = {}
        for occurrence in self.occurrences:
            relation = occurrence.relation
            if relation.private:
                physical.append(numbers.setdefault(relation.root, len(numbers)))
            else:
                physical.append(None)
        return Shape(
            attributes=tuple(o.attributes & join for o in self.occurrences),
            physical=tuple(physical),
            keys=tuple(
                tuple(k for k in self.identifying_keys(o) if k <= join) for o in self.occurrences
            ),
        )


@dataclass(frozen=True, slots=True)
class Shape:
    """The join hypergraph.

    Occurrence -> its join attributes, its physical private relation (0, 1, ...; ``None`` for
    a public one) and its trusted keys as attribute sets.
    """

    attributes: tuple[frozenset[int], ...]
    physical: tuple[int | None, ...]
    keys: tuple[tuple[frozenset[int], ...], ...] = ()

    @property
    def private_count(self) -> int:
        """Number of distinct physical private relations."""
        return len({p for p in self.physical if p is not None})

    def boundary(self, occurrences: frozenset[int]) -> frozenset[int]:
        """Attributes shared between ``occurrences`` and the rest: the boundary of the residual."""
        inside: set[int] = set()
        outside: set[int] = set()
        for i, attributes in enumerate(self.attributes):
            (inside if i in occurrences else outside).update(attributes)
        return frozenset(inside & outside)

    def components(self, occurrences: frozenset[int]) -> tuple[frozenset[int], ...]:
        """Return the components of a set, connected by shared join attributes, sorted."""
        left = set(occurrences)
        found = []
        while left:
            component = {min(left)}
            attributes = set(self.attributes[min(left)])
            grown = True
            while grown:
                grown = False
                for i in left - component:
                    if self.attributes[i] & attributes:
                        component.add(i)
                        attributes |= self.attributes[i]
                        grown = True
            found.append(frozenset(component))
            left -= component
        return tuple(sorted(found, key=min))


@dataclass(frozen=True, slots=True)
class Boundary:
    """Request for ``max over values of attributes of the number of results of occurrences``.

    With ``attributes = shape.boundary(occurrences)`` it is the paper's ``T_E``; with one
    occurrence it is a maximum frequency; with no attributes it is the plain count.
    Predicates apply iff all their occurrences are inside.  0 when there are no results.
    """

    occurrences: frozenset[int]
    attributes: frozenset[int]


@dataclass(frozen=True, slots=True)
class Counts:
    """What one counting run returns: exact integers, never floats.

    ``groups`` maps group key texts (type output format, ``None`` for NULL; ``()`` without
    GROUP BY) to the true count; absent groups have count 0.
    """

    boundaries: dict[Boundary, int]
    groups: dict[tuple[str | None, ...], int]


@dataclass(frozen=True, slots=True)
class Contributions:
    """What the privacy units add to a grouped count: exact and secret.

    ``units[c]`` is the number of units with ``c`` results in all groups together, and
    ``groups[key][c, n]`` of those that have ``n`` of their ``c`` results in the group.
    """

    units: dict[int, int]
    groups: dict[Key, dict[tuple[int, int], int]]

    def above(self, bounds: Sequence[int]) -> list[int]:
        """Count the units with more results than each bound; bounds ascend."""
        found = []
        totals = sorted(self.units.items(), reverse=True)
        exceed = sum(self.units.values())
        for bound in bounds:
            while totals and totals[-1][0] <= bound:
                exceed -= totals.pop()[1]
            found.append(exceed)
        return found

    def truncated(self, bound: int, groups: Iterable[Key]) -> list[int]:
        """Count the groups with every unit scaled down to at most ``bound`` results in all.

        Shares are rounded down, so that a unit's are still at most ``bound`` together.
        """
        return [
            sum(
                units * (n if total <= bound else n * bound // total)
                for (total, n), units in self.groups.get(key, {}).items()
            )
            for key in groups
        ]


@dataclass(frozen=True, slots=True)
class GroupKey:
    """A GROUP BY expression: its type and, if its domain is public, the SQL that lists it.

    ``members`` index into ``Question.group_domains``: keys whose domain must be listed
    together (columns of one public relation) share one domain query.
    """

    name: str
    type_name: str


@dataclass(frozen=True, slots=True)
class GroupDomain:
    """The distinct public values of the group keys at ``positions``, each as text.

    Either ``sql`` returns them, in that order, from declared domains; or they are the groups
    that ``query``, over public relations only, has results in.  ``identity`` is equal for
    equivalent domains.
    """

    positions: tuple[int, ...]
    identity: str
    sql: str | None = None
    query: JoinQuery | None = None


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """A result column as PostgreSQL's analysis typed it."""

    name: str
    type_name: str


@dataclass(frozen=True, slots=True)
class Question:
    """A validated statement.

    ``aggregates[j]`` counts for the j-th distinct ``dp_count``; all share ``groups``.
    ``post_sql`` selects the output columns ``c1 ... cn`` from a relation named ``noisy`` with
    columns ``g0, g1, ...`` (group keys, typed), ``a0, a1, ...`` (bigint) and ``l0, h0, ...``
    (bigint, ends of an interval around ``a0, ...``), and carries HAVING, ORDER BY, DISTINCT and
    LIMIT; it reads nothing else.  ``wants_interval`` says that it uses an ``l`` or ``h`` column.
    ``group_domains`` cover every group key exactly once, or are ``None`` if some key's domain
    is not public (then groups need private thresholding, PRIVACY.md section 6).
    ``redundant`` names relations whose joins foreign keys made needless, for a person.
    Aggregates with one number in ``blocks`` read disjoint rows, or units, each pair of them.
    ``canonical`` is equal for equivalent texts (aliases, order of conjuncts, join syntax) and
    does not include post-processing.
    """

    canonical: str
    aggregates: tuple[JoinQuery, ...]
    group_keys: tuple[GroupKey, ...]
    group_domains: tuple[GroupDomain, ...] | None
    undeclared_domain_hint: str | None
    columns: tuple[OutputColumn, ...]
    post_sql: str
    wants_interval: bool = False
    redundant: tuple[str, ...] = ()
    blocks: tuple[int, ...] = ()

    @property
    def relations(self) -> tuple[int, ...]:
        """OIDs of all private relations that are read, sorted."""
        return tuple(
            sorted(
                {
                    o.relation.oid
                    for q in self.aggregates
                    for o in q.occurrences
                    if o.relation.private
                }
            )
        )

    @property
    def roots(self) -> tuple[int, ...]:
        """Ledger roots of all private relations that are read, sorted."""
        return tuple(
            sorted(
                {
                    root
                    for q in self.aggregates
                    for o in q.occurrences
                    if o.relation.private
                    for root in o.relation.roots
                }
            )
        )


@dataclass(frozen=True, slots=True)
class Guarantee:
    """An (epsilon, delta) promise, exact."""

    epsilon: Fraction
    delta: Fraction
