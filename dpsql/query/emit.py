"""From the query graph to a :class:`dpsql.model.JoinQuery`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from dpsql.errors import UnsupportedConstruct
from dpsql.model import Attribute, AttributeUse, Computed, JoinQuery, Occurrence, Predicate, Weight
from dpsql.query.described import described
from dpsql.query.graph import AttributeClass, Graph, as_type, bare
from dpsql.query.ir import ALWAYS, NEVER, Expr, constant, renumber
from dpsql.query.measures import Measure, Value, fits_bigint
from dpsql.query.places import with_places
from dpsql.query.shippable import shippable
from dpsql.query.steps import steps_of
from dpsql.query.totality import short
from dpsql.query.types import FLOATS, INTEGERS, TEXTS, modifier, octets
from dpsql.query.units import equation
from dpsql.query.values import fitted

#: Bytes of computed texts that joins, groups and predicates may take of one row of a relation.
MAX_EXPORTED = 64 << 20
#: Expressions that joins, groups and conditions over several relations may take, and group keys
#: over privacy units: a statement of the server has 1,664 columns at most.  Counting needs one for
#: each, and over units three for each key (`contribution_sql`) and five more.
MAX_ATTRIBUTES = 1650
MAX_KEYS_OF_UNITS = (1664 - 5) // 3

_COMPARISONS = frozenset(("=", "<>", "<", "<=", ">", ">="))
#: Functions of numeric that do not tell how an equal number is written.
_RESPECTFUL_FUNCTIONS = frozenset(("round", "trim_scale", "width_bucket"))
_RESPECTFUL = frozenset(
    [
        "and",
        "or",
        "not",
        "is",
        "distinct",
        "in",
        "case",
        "coalesce",
        "greatest",
        "least",
        "nullif",
        "narrow",
        "guard",
        "attribute",
        "const",
    ]
)


@dataclass(frozen=True, slots=True)
class Emitted:
    """A join query, with its predicates and value as they were before anything rewrote them."""

    query: JoinQuery
    predicates: tuple[Expr, ...]
    value: Expr | None = None


def has_identity_equality(e: Expr) -> bool:
    """Tell whether equal values of an expression are indistinguishable.

    1.0 = 1.00, 0 = -0, 'a' = 'a ' (bpchar) and 1 mon = 30 days are equal and differ in
    text or under some function, so grouping keeps an arbitrary one of them.
    """
    if e.type == "numeric":
        source = bare(e)
        if source.type in INTEGERS:
            return True
        return source.kind == "col" and len(modifier(str(source.data[3]))) == 2  # type: ignore[index]
    return e.type not in (*FLOATS, "bpchar", "interval")


def canonical_key(e: Expr) -> Expr:
    """Make equal values of a group key identical, so that its text tells nothing more.

    Otherwise the shown representative (1.0 or 1.00) would be chosen by the data
    (PRIVACY.md section 2).
    """
    if has_identity_equality(e):
        return e
    if e.type == "numeric":
        return Expr("fn", "numeric", (e,), "trim_scale")
    if e.type in FLOATS:
        zero = constant(e.type, "0")
        is_zero = Expr("op", "boolean", (e, zero), "=")
        return Expr("case", e.type, (is_zero, zero, e))
    if e.type == "bpchar":
        return Expr("cast", "text", (e,), "text")
    raise UnsupportedConstruct(
        "GROUP BY an interval is not supported",
        hint="Use EXTRACT(epoch FROM interval).",
    )


class _Emitter:
    """Numbers occurrences and attributes."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.numbers = {old: new for new, old in enumerate(graph.alive)}
        self.attributes: list[Attribute] = []
        self.uses: dict[int, list[AttributeUse]] = {o: [] for o in graph.alive}
        self.carried: dict[Expr, int] = {}
        self.joins: list[tuple[AttributeClass, int]] = []
        self.exported = dict.fromkeys(graph.alive, 0)
        self.cut = any(graph.relations[o].parts for o in graph.alive)

    def sent(self, e: Expr) -> Expr:
        """Rewrite an expression so that it can be sent to other servers, if rows are there."""
        return shippable(e) if self.cut else e

    def own(self, e: Expr) -> Expr:
        """Rewrite an expression over columns for the numbers of occurrences that are left."""
        return self.sent(renumber(e, self.numbers))

    def _export(self, occurrence: int, e: Expr) -> Expr:
        """Rewrite what joins, groups or predicates need of an occurrence.

        Computed texts are held together for a row: PostgreSQL raises an error beyond 1 GB.
        """
        if e.type in TEXTS and e.kind not in ("col", "const"):
            e = short(e)
            self.exported[occurrence] += octets(e) or 0
            if self.exported[occurrence] > MAX_EXPORTED:
                raise UnsupportedConstruct(
                    "too many computed texts of one relation take part in joins or groups",
                    detail="Together they could be longer than PostgreSQL can hold for a row.",
                    hint="Join, group and compare by columns, or by fewer expressions.",
                )
        return self.own(e)

    def join_attributes(self) -> None:
        for c in self.graph.classes:
            number = len(self.attributes)
            self.attributes.append(Attribute(number, c.type, join=True))
            self.joins.append((c, number))
            for occurrence in sorted(c.occurrences):
                member = c.of(occurrence)[0]
                name = str(member.data[1]) if member.kind == "col" else None  # type: ignore[index]
                self.uses[occurrence].append(
                    AttributeUse(number, self._export(occurrence, member), name)
                )

    def joined(self, e: Expr, *, exact: bool) -> int | None:
        """Find the join attribute that stands for an expression."""
        source = bare(e)
        for c, number in self.joins:
            if not any(member == source for _, member in c.members):
                continue
            if c.type == e.type:
                return number
            if not exact and {c.type, e.type} <= set(INTEGERS):
                return number
        return None

    def carry(self, e: Expr) -> int:
        """Carry an expression of one occurrence."""
        found = self.carried.get(e)
        if found is not None:
            return found
        number = len(self.attributes)
        self.carried[e] = number
        (occurrence,) = e.occurrences()
        values, listing = _listed(e, self.graph.filters.get(occurrence, ()))
        listed = None if listing is None else self.own(listing)
        self.attributes.append(Attribute(number, e.type, False, values, listed))
        name = str(e.data[1]) if e.kind == "col" else None  # type: ignore[index]
        self.uses[occurrence].append(AttributeUse(number, self._export(occurrence, e), name))
        return number

    def predicate(self, e: Expr) -> Expr:
        """Replace maximal parts over one occurrence by attributes.

        They are evaluated before grouping; what is left must respect the equality that
        grouping uses, or the result would depend on which representative was kept.
        """
        leaves: list[Expr] = []
        replaced = self._replace(e, leaves)
        if not all(has_identity_equality(leaf) for leaf in leaves):
            _require_respect(replaced)
        return replaced

    def _replace(self, e: Expr, leaves: list[Expr]) -> Expr:
        read = e.occurrences()
        if not read:
            return e
        if len(read) == 1:
            leaves.append(e)
            number = self.joined(e, exact=True)
            return Expr("attribute", e.type, data=self.carry(e) if number is None else number)
        args = tuple(self._replace(a, leaves) for a in e.args)
        return Expr(e.kind, e.type, args, e.data)

    def value(self, value: Value, predicates: list[Predicate]) -> Expr:
        """Provide what is summed: over one occurrence, or over attributes of several.

        Attributes are carried until all occurrences come together, as those of a predicate.
        """
        e = value.expression
        if len(e.occurrences()) < 2:
            return renumber(e, self.numbers)
        replaced = self.predicate(e)
        predicates.append(Predicate(ALWAYS, replaced.attributes(), self.places(e)))
        return replaced

    def weight(self, value: Value, written: Expr) -> Weight:
        """Make the weight of a value that was provided."""
        occurrences = self.places(value.expression) or frozenset({0})
        low, high = value.steps
        integer, steps, e = fits_bigint(value), steps_of(value, written), self.sent(written)
        # steps are counted by a function that other servers need not have
        in_steps = not (integer or self.cut) and steps is not None and steps.fits
        if in_steps and steps is not None:
            integer, e = True, steps.expression
        return Weight(
            e, occurrences, value.digits, low, high, integer, value.loose, in_steps, steps
        )

    def places(self, e: Expr) -> frozenset[int]:
        return frozenset(self.numbers[o] for o in e.occurrences())

    def group(self, key: Expr) -> int:
        """Provide a group key."""
        if has_identity_equality(key) and key.type != "numeric":
            number = self.joined(key, exact=key.type not in INTEGERS)
            if number is not None:
                return number
        # shown as text, which drops the blanks that its equality ignores
        return self.carry(key if key.type == "bpchar" else canonical_key(key))

    def told(self, e: Expr) -> tuple[int, Expr | None]:
        """Provide a cell or distinct value, computed of attributes if it spans occurrences."""
        if len(e.occurrences()) < 2:
            return self.group(e), None
        written = self.predicate(canonical_key(e))
        number = len(self.attributes)
        self.attributes.append(Attribute(number, written.type, join=False))
        return number, written


def _listed(e: Expr, filters: Iterable[Expr]) -> tuple[tuple[Expr, ...], Expr | None]:
    """Find the values that a filter lists of an expression, beside NULL, and the filter."""
    for found in filters:
        condition = found
        if condition.kind == "or" and Expr("is", "boolean", (e,), "NULL") in condition.args:
            others = [a for a in condition.args if a.kind != "is"]
            condition = others[0] if len(others) == 1 == len(condition.args) - 1 else condition
        listing = condition.kind == "in" and not condition.data
        if not (listing or (condition.kind == "op" and condition.data == "=")):
            continue
        first, *values = condition.args
        if first == e and all(v.kind == "const" and v.type == e.type for v in values):
            return tuple(dict.fromkeys(v for v in values if v.data is not None)), found
    return (), None


def _effort(e: Expr) -> int:
    """Guess what it takes to test a condition: PostgreSQL tests those of equal cost as written."""
    types = {n.type for n in e.walk()}
    if types & set(TEXTS):
        return 3 if any(n.kind == "fn" for n in e.walk()) else 2
    return 1 if "numeric" in types else 0


def _require_respect(e: Expr) -> None:
    """Refuse what could tell equal values apart in a condition that spans relations."""
    for node in e.walk():
        if node.kind in _RESPECTFUL:
            continue
        if node.kind == "op" and (node.data in _COMPARISONS or node.data in ("+", "-", "*")):
            numbers = {a.type for a in node.args} - {"interval", "bpchar"}
            if node.data in _COMPARISONS or numbers == {a.type for a in node.args}:
                continue
        if node.kind == "cast" and node.type not in TEXTS:
            continue
        if node.kind == "fn" and node.data in _RESPECTFUL_FUNCTIONS and "numeric" in _types(node):
            continue
        raise UnsupportedConstruct(
            "this condition over columns of several relations is not supported",
            detail="Its result could depend on how equal values are written.",
            hint="Cast the columns first, or use columns of one relation on each side.",
        )


def _types(node: Expr) -> set[str]:
    """Return the types of a node and what it is applied to."""
    return {node.type, *(a.type for a in node.args)}


def _of_several(measure: Measure, roots: Sequence[int]) -> Measure:
    """Return what is counted or summed where results can belong to several units; refuse others."""
    if measure.units or measure.distinct is not None or measure.cell is not None:
        raise UnsupportedConstruct(
            "of results that can belong to several privacy units only counts, sums and averages are"
            " told",
            detail="Different values, values by rank and histograms need one unit for each result.",
            hint="Count what is sought, for example with dp_count(*) FILTER (WHERE x < 10), which"
            " shares dp.epsilon with other aggregates"
            f"{equation(roots, 'a.customer = b.customer')}.",
        )
    return measure if measure.value is None else replace(measure, value=fitted(measure.value))


def emit(graph: Graph, measure: Measure | None = None) -> Emitted:
    """Write a settled graph as a join query: a count, or what a measure says."""
    measure = measure or Measure()
    emitter = _Emitter(graph)
    emitter.join_attributes()
    predicates = []
    expressions = []
    for condition in graph.spanning:
        replaced = emitter.predicate(condition)
        expressions.append(replaced)
        used, places = replaced.attributes(), emitter.places(condition)
        predicates.append(Predicate(emitter.sent(replaced), used, places))
    groups = tuple(emitter.group(key) for key in graph.keys)
    unit = None if graph.unit is None else emitter.group(graph.unit)
    units = tuple(dict.fromkeys((emitter.group(named), root) for root, named in graph.units))
    if len(units) == 1:
        unit, units = units[0][0], ()
    if units:
        measure = _of_several(measure, [root for _, root in units])
    distinct: tuple[int, ...] = ()
    computed: Expr | None = None
    number: int | None = None
    if measure.units and unit is not None:
        distinct = (unit,)
    elif measure.distinct is not None:
        number, computed = emitter.told(measure.distinct)
        distinct = (number,)
    if measure.cell is not None:
        number, computed = emitter.told(measure.cell)
        groups = (*groups, number)
    weights: tuple[Weight, ...] = ()
    value = None
    if measure.value is not None:
        value = emitter.value(measure.value, predicates)
        weights = (emitter.weight(measure.value, value),)
    occurrences = []
    for old in graph.alive:
        conditions = graph.filters.get(old, ())
        by_effort = [(_effort(f), emitter.own(f)) for f in conditions]
        by_effort.sort(key=lambda known: (known[0], described(known[1])))
        filters = [NEVER] if graph.contradiction else [f for _, f in by_effort]
        occurrences.append(
            Occurrence(
                emitter.numbers[old],
                graph.relations[old],
                tuple(emitter.uses[old]),
                tuple(filters),
            )
        )
    if len(emitter.attributes) > MAX_ATTRIBUTES:
        raise UnsupportedConstruct(
            f"more than {MAX_ATTRIBUTES} expressions in joins, groups and conditions over several"
            " relations are not supported",
            hint="Group, join and compare by fewer.",
        )
    if len(groups) > MAX_KEYS_OF_UNITS and (unit is not None or units):
        raise UnsupportedConstruct(
            f"more than {MAX_KEYS_OF_UNITS} group keys over privacy units are not supported",
            hint="Group by fewer.",
        )
    query = JoinQuery(
        tuple(occurrences),
        tuple(emitter.attributes),
        tuple(predicates),
        groups,
        unit,
        weights,
        distinct,
        measure.cells,
        measure.rank,
        tuple(attribute for attribute, _ in units),
        tuple(root for _, root in units),
        None if computed is None or number is None else Computed(number, computed),
    )
    return Emitted(with_places(query), tuple(expressions), value)


__all__ = ["Emitted", "as_type", "canonical_key", "emit", "has_identity_equality"]
