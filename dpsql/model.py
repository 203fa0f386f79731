"""Frozen records that cross layers.  Standard library only.

The vocabulary of one query; `dpsql.relation` has that of the catalogue which comes before, and
`dpsql.counted` the numbers which come after:

``JoinQuery``    one counting query: occurrences of relations joined on attributes
``Shape``        what is left of a ``JoinQuery`` when SQL is forgotten: pure sets
``Boundary``     a request for one maximum boundary ``T_E`` (or maximum frequency)
``Question``     a whole validated statement: counting queries plus free post-processing

An *attribute* is an integer: an equivalence class of join columns (``join=True``)
or a column/expression of one occurrence that something else needs, a group key or
a predicate that spans relations (``join=False``, "carried").
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction

from dpsql.expression import Expr
from dpsql.relation import Relation, base
from dpsql.statement import Shown, Statement
from dpsql.steps import Steps

#: Shares of a unit in groups, certified bounds and their noise are whole numbers of ``1/GRID``.
GRID = 2**20

#: Texts of a group's key values, ``None`` for NULL; ``()`` without GROUP BY.
Key = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Attribute:
    """One variable of a counting query.

    ``type_name`` is the SQL type every use is cast to (so that int4 = int8 joins unify).
    ``join`` attributes equate at least two occurrences and are never NULL in a result;
    carried ones belong to one occurrence and may be NULL.
    ``values``, unless empty, are constants, one of which a carried attribute is in every row, if
    it is not NULL: a filter of its occurrence says so, ``listing``.
    """

    id: int
    type_name: str
    join: bool
    values: tuple[Expr, ...] = ()
    listing: Expr | None = None
    #: a join attribute that numbers the part where a row is, from 1 (`dpsql.query.places`)
    place: bool = False


@dataclass(frozen=True, slots=True)
class AttributeUse:
    """How an occurrence provides an attribute.

    ``column`` names the plain column when it is nothing but a column (keys apply only then).
    """

    attribute: int
    expression: Expr
    column: str | None


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One relation in the flattened FROM list, known in SQL by the alias ``r<index>``.

    ``filters`` are conditions over its columns alone, total by construction (they cannot raise on
    any row); all must be true.
    """

    index: int
    relation: Relation
    uses: tuple[AttributeUse, ...]
    filters: tuple[Expr, ...] = ()

    @property
    def alias(self) -> str:
        """The alias that its columns are written with."""
        return f"r{self.index}"

    @property
    def attributes(self) -> frozenset[int]:
        """All attributes that the occurrence provides."""
        return frozenset(use.attribute for use in self.uses)


@dataclass(frozen=True, slots=True)
class Predicate:
    """A condition that spans occurrences, over attributes."""

    expression: Expr
    attributes: frozenset[int]
    occurrences: frozenset[int]


def same_values(source: str, target: str) -> bool:
    """Whether casting ``source`` to ``target`` keeps distinct values distinct, for certain."""
    kept = (source, base(source))  # a modifier restricts values, and merges none
    if target in kept or (kept[1] == "character varying" and target == "text"):
        return True
    widths = {"smallint": 2, "integer": 4, "bigint": 8}
    return source in widths and widths[source] <= widths.get(target, 0)


@dataclass(frozen=True, slots=True)
class Weight:
    """The number that a result adds: ``expression`` times ``factor``, in integer steps, never NULL.

    A number is so many steps of ``10**-digits``; ``in_steps`` says that ``expression`` already
    counts them.  ``steps``, if any, are the same integers in eight bytes, or error 22003.

    ``expression`` is over columns of its one occurrence, or over attributes if it spans several;
    its type is exact (``integer`` says whether it fits bigint, else it is numeric).  The integers
    lie between the public ``low`` and ``high``, which rows were clamped to or, if ``loose``, their
    type has.
    """

    expression: Expr
    occurrences: frozenset[int]
    digits: int
    low: int
    high: int
    integer: bool
    loose: bool = False
    in_steps: bool = False
    steps: Steps | None = None

    @property
    def factor(self) -> int:
        """The number of steps in one unit of ``expression``."""
        return 1 if self.in_steps else 10**self.digits

    @property
    def bound(self) -> int:
        """The largest magnitude, at least 1."""
        return max(abs(self.low), abs(self.high), 1)


@dataclass(frozen=True, slots=True)
class Computed:
    """An attribute that no occurrence provides: an expression over others.

    Equal inputs give equal values, so it may be computed of groups of results.
    """

    attribute: int
    expression: Expr

    @property
    def inputs(self) -> frozenset[int]:
        """The attributes that it is computed of."""
        return self.expression.attributes()


@dataclass(frozen=True, slots=True)
class JoinQuery:
    """``SELECT groups, count(*) FROM occurrences WHERE ... GROUP BY groups``.

    ``occurrences[i].index == i`` and ``attributes[j].id == j``.  ``unit`` is the attribute that
    names the one privacy unit which a result belongs to, ``None`` under row neighbours and where
    a result can belong to several.  Those are named by ``units``, at least two attributes;
    ``unit_roots`` tells of which protected relation: equal values are one unit if it is the same.
    With ``weights`` (one, but while several sums are read together) results are summed and not
    counted.  With ``distinct`` the different values of these attributes are counted per group;
    NULL is none.  With ``cells`` the last group tells in which of so many cells, numbered from 1, a
    value lies; then ``rank`` is the share of results up to a value that is sought: 0 is the least
    value, 1 the greatest, ``None`` asks for the number in every cell.  A cell or distinct value of
    several occurrences is ``computed``.
    """

    occurrences: tuple[Occurrence, ...]
    attributes: tuple[Attribute, ...]
    predicates: tuple[Predicate, ...] = ()
    groups: tuple[int, ...] = ()
    unit: int | None = None
    weights: tuple[Weight, ...] = ()
    distinct: tuple[int, ...] = ()
    cells: int = 0
    rank: Fraction | None = None
    units: tuple[int, ...] = ()
    unit_roots: tuple[int, ...] = ()
    computed: Computed | None = None

    def provided(self, attributes: Iterable[int]) -> frozenset[int]:
        """Return what must be read of results to tell some attributes."""
        found = set(attributes)
        if self.computed is not None and self.computed.attribute in found:
            found = found - {self.computed.attribute} | self.computed.inputs
        return frozenset(found)

    @property
    def over_units(self) -> bool:
        """Whether privacy units are protected, not single rows."""
        return self.unit is not None or bool(self.units)

    def counted_keys(self, groups: list[Key]) -> list[Key]:
        """Return the keys of the numbers that are released: of a histogram all cells of a group."""
        if not self.cells or self.rank is not None:
            return groups
        return [key for group in groups for key in self.cells_of(group)]

    def cells_of(self, key: Key) -> list[Key]:
        """Return the keys of a group's cells, in order."""
        return [(*key, str(cell)) for cell in range(1, self.cells + 1)]

    @property
    def plain(self) -> JoinQuery:
        """The count of the same results."""
        return replace(self, weights=(), distinct=())

    @property
    def digits(self) -> int:
        """The decimals of its numbers: counts have none."""
        return self.weights[0].digits if self.weights else 0

    @property
    def grid(self) -> int:
        """In how many steps to a whole the shares of units are told."""
        return GRID if self.groups and not self.distinct else 1

    def determined_by(self, attributes: frozenset[int], given: Occurrence | None = None) -> bool:
        """Whether attributes, and a row that is given, determine a result by trusted keys."""
        known, left = set(attributes), [o for o in self.occurrences if o is not given]
        while left:
            found = [o for o in left if any(key <= known for key in self.identifying_keys(o))]
            if not found:
                return False
            known.update(*(o.attributes for o in found))
            left = [o for o in left if o not in found]
        return True

    @property
    def one_per_unit(self) -> bool:
        """Whether a privacy unit has at most one result, by trusted keys."""
        return self.unit is not None and self.determined_by(frozenset({self.unit}))

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
            far=frozenset(o.index for o in self.occurrences if o.relation.parts),
            places=frozenset(a.id for a in self.attributes if a.place),
        )


@dataclass(frozen=True, slots=True)
class Shape:
    """The join hypergraph.

    Occurrence -> its join attributes, its physical private relation (0, 1, ...; ``None`` for
    a public one) and its trusted keys as attribute sets.  ``far`` are the occurrences with rows
    on other servers; those that share one of ``places`` are joined there (`dpsql.query.places`).
    """

    attributes: tuple[frozenset[int], ...]
    physical: tuple[int | None, ...]
    keys: tuple[tuple[frozenset[int], ...], ...] = ()
    far: frozenset[int] = frozenset()
    places: frozenset[int] = frozenset()

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
    """A result column as PostgreSQL's analysis typed it.

    If its type is a domain, ``type_name`` is the base type and ``domain`` the domain's name;
    ``source`` is the column that it shows, if it shows one.
    """

    name: str
    type_name: str
    domain: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """A validated statement.

    ``aggregates[n]`` counts or sums the n-th vector that its aggregates are made of; all share
    ``groups``.  ``selection`` is the number of the one that decides which groups are shown where
    these are not public.  Column ``aj`` of the post-processing is the vector ``vectors[j]``, cut at
    ``most[j]``, which a public fact says that no count exceeds, unless it is ``None``.
    ``statement`` selects the output columns ``c1 ... cn`` from a relation named ``noisy`` with
    columns ``g0, g1, ...`` (group keys, typed), ``a0, a1, ...`` (counts bigint, sums numeric) and
    ``l0, h0, ...`` (ends of an interval around ``a0, ...``; ``p0, q0, ...``: surer ones), and
    carries HAVING, ORDER BY, DISTINCT and LIMIT; it reads nothing else.  ``shown`` says what its
    columns show, ``wants_interval`` that it uses ends; ``over_zero`` is the same statement in which
    division by 0 gives NULL, ``None`` where nothing is divided.
    ``group_domains`` cover every group key exactly once, or are ``None`` if some key's domain
    is not public (then groups need private thresholding, PRIVACY.md section 6).
    ``redundant`` names relations whose joins foreign keys made needless, for a person; ``loose``
    aggregates of values that nobody declared or wrote bounds of, ``others`` columns grouped by of
    which all values outside of a declared domain count as one, with that, ``unlisted`` columns with
    texts that conditions compare them with and their declared domains do not list.
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
    statement: Statement
    shown: tuple[Shown, ...]
    wants_interval: bool = False
    redundant: tuple[str, ...] = ()
    loose: tuple[str, ...] = ()
    selection: int | None = None
    vectors: tuple[int, ...] = ()
    most: tuple[int | None, ...] = ()
    blocks: tuple[int, ...] = ()
    others: tuple[tuple[str, str], ...] = ()
    unlisted: tuple[tuple[str, str], ...] = ()
    over_zero: Statement | None = None

    @property
    def post_sql(self) -> str:
        """The text of ``statement``."""
        return self.statement.sql

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
