"""From a select-project-join block to attribute classes, filters and predicates.

A row combination is in the result iff every conjunct is *true*, so conjuncts may be
sorted by the occurrences that they read:

- an equality between expressions of one occurrence each puts both into one attribute
  class (union-find, hence the transitive closure) when grouping by the class type is the
  same equivalence as the operator; classes that span occurrences are join attributes;
- anything else over one occurrence filters that occurrence before its statistics
  (PRIVACY.md section 4, "a predicate on one relation is applied before its statistics");
- the rest spans occurrences and becomes a predicate over carried attributes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from dpsql.errors import UndeclaredRelation
from dpsql.query.ir import FALSE, TRUE, Expr, constant
from dpsql.query.normalise import normalise
from dpsql.query.types import EXACT, FLOATS, INTEGERS, modifier
from dpsql.relation import Relation

Member = tuple[int, Expr]


@dataclass
class AttributeClass:
    """Expressions that are equal in every result, per occurrence."""

    members: list[Member]
    type: str

    @property
    def occurrences(self) -> set[int]:
        """The occurrences that take part."""
        return {occurrence for occurrence, _ in self.members}

    def of(self, occurrence: int) -> list[Expr]:
        """Members of one occurrence."""
        return [e for o, e in self.members if o == occurrence]


@dataclass
class Graph:
    """The query graph while passes work on it; ``alive`` are the remaining occurrences."""

    relations: list[Relation]
    keys: list[Expr]
    alive: list[int]
    classes: list[AttributeClass] = field(default_factory=list)
    filters: dict[int, list[Expr]] = field(default_factory=dict)
    spanning: list[Expr] = field(default_factory=list)
    contradiction: bool = False
    #: names the privacy unit of a result; ``None`` where rows are protected one by one
    unit: Expr | None = None
    #: what else is read of results: values that are summed or told apart
    needed: list[Expr] = field(default_factory=list)
    #: names of the units where a result can belong to several, each with its protected relation
    units: list[tuple[int, Expr]] = field(default_factory=list)

    def class_of(self, occurrence: int, bare_expression: Expr) -> AttributeClass | None:
        """Find the class of an expression."""
        for c in self.classes:
            if (occurrence, bare_expression) in c.members:
                return c
        return None


def bare(e: Expr) -> Expr:
    """Strip casts that preserve equality: a = b iff cast(a) = cast(b).

    Integers into wider integers and numeric, real into double precision, texts into text
    (``bpchar`` to text drops the blanks that its equality ignores).
    """
    while e.kind == "cast" and not modifier(str(e.data)):
        source = e.args[0].type
        widening = source in INTEGERS and e.type in EXACT
        widening = widening and EXACT.index(e.type) >= EXACT.index(source)
        textual = source in ("character varying", "bpchar", '"char"', "text") and e.type == "text"
        if not (widening or textual or (source == "real" and e.type == "double precision")):
            break
        e = e.args[0]
    return e


def common_type(left: str, right: str) -> str | None:
    """Find the type in which grouping coincides with equality of both sides."""
    if left == right:
        return left
    for family in (EXACT, FLOATS):
        if left in family and right in family:
            return max(left, right, key=family.index)
    texts = {"text", "character varying", "bpchar", '"char"'}
    if left in texts and right in texts:
        return "text"
    return None


def as_type(e: Expr, type_: str) -> Expr:
    """View a member in its class's type."""
    if e.type == type_:
        return e
    if e.kind == "const":
        return constant(type_, None if e.data is None else str(e.data))
    return Expr("cast", type_, (e,), type_)


def not_null(e: Expr) -> Expr:
    """Make ``e IS NOT NULL``, decided at once where the schema decides it."""
    if e.kind == "col":
        return TRUE if e.data[2] else Expr("is", "boolean", (e,), "NOT NULL")  # type: ignore[index]
    if e.kind == "const":
        return FALSE if e.data is None else TRUE
    return Expr("is", "boolean", (e,), "NOT NULL")


def build(
    relations: list[Relation],
    conditions: list[Expr],
    keys: list[Expr],
    needed: Iterable[Expr] = (),
) -> Graph:
    """Sort the conjuncts of a block."""
    graph = Graph(relations, keys, list(range(len(relations))), needed=list(needed))
    equalities: list[tuple[Member, Member, str]] = []
    for condition in dict.fromkeys(normalise(c) for c in conditions):
        if condition == TRUE:
            continue
        if condition.kind == "const":  # false or NULL: no row combination is a result
            graph.contradiction = True
            continue
        found = _equality(condition)
        if found is not None:
            equalities.append(found)
            continue
        place(graph, condition)
    _union(graph, equalities)
    return graph


def place(graph: Graph, condition: Expr) -> None:
    """File a conjunct under what it reads."""
    if condition == TRUE:
        return
    read = condition.occurrences()
    if len(read) > 1:
        graph.spanning.append(condition)
    else:
        graph.filters.setdefault(min(read, default=0), []).append(condition)


def unite(graph: Graph, left: Expr, right: Expr) -> None:
    """Add an equality of two columns of different occurrences, as keys compare them."""
    found = _equality(Expr("op", "boolean", (left, right), "="))
    if found is None:
        raise UndeclaredRelation(
            "the columns that lead to a privacy unit cannot be compared",
            detail=f"One is of type {left.type}, the other of type {right.type}.",
            hint="Let the owner of the data link columns of one type.",
        )
    _union(graph, [found])


def _equality(e: Expr) -> tuple[Member, Member, str] | None:
    if e.kind != "op" or e.data != "=" or len(e.args) != 2:
        return None
    left, right = bare(e.args[0]), bare(e.args[1])
    reads = left.occurrences(), right.occurrences()
    if len(reads[0]) != 1 or len(reads[1]) != 1:
        return None
    type_ = common_type(left.type, right.type)
    if type_ is None or left == right:
        return None
    return (min(reads[0]), left), (min(reads[1]), right), type_


def _union(graph: Graph, equalities: list[tuple[Member, Member, str]]) -> None:
    for left, right, type_ in equalities:
        first = graph.class_of(*left) or AttributeClass([left], left[1].type)
        second = graph.class_of(*right) or AttributeClass([right], right[1].type)
        joined = common_type(common_type(first.type, second.type) or type_, type_) or type_
        if first is second:
            continue
        members = [*first.members, *(m for m in second.members if m not in first.members)]
        graph.classes = [c for c in graph.classes if c is not first and c is not second]
        graph.classes.append(AttributeClass(members, joined))


def settle(graph: Graph) -> None:
    """Turn classes into filters where they do not (or not only) join.

    Several members in one occurrence are equal by a local filter; a constant that one
    member must equal filters all occurrences of the class.  Both follow from the
    conjuncts, so results stay the same while statistics see fewer rows.
    """
    joins = []
    for c in graph.classes:
        for occurrence in sorted(c.occurrences):
            first, *others = c.of(occurrence)
            for other in others:
                equal = (as_type(first, c.type), as_type(other, c.type))
                place(graph, normalise(Expr("op", "boolean", equal, "=")))
        if len(c.occurrences) > 1:
            joins.append(c)
            _propagate_constants(graph, c)
    graph.classes = joins
    for occurrence in graph.alive:
        graph.filters[occurrence] = list(dict.fromkeys(graph.filters.get(occurrence, [])))


def _propagate_constants(graph: Graph, c: AttributeClass) -> None:
    for occurrence, member in c.members:
        for condition in list(graph.filters.get(occurrence, ())):
            if condition.kind != "op" or condition.data != "=" or len(condition.args) != 2:
                continue
            left, right = condition.args
            if right.kind != "const" or right.data is None or bare(left) != member:
                continue
            if not _same_text(right.type, c.type):
                continue
            for other, expression in c.members:
                if other == occurrence and expression == member:
                    continue
                equal = (as_type(expression, c.type), as_type(right, c.type))
                implied = Expr("op", "boolean", equal, "=")
                existing = graph.filters.setdefault(other, [])
                if implied not in existing:
                    existing.append(implied)


def _same_text(source: str, target: str) -> bool:
    """Tell whether a constant of one type reads the same in the other."""
    if source == target:
        return True
    if source in INTEGERS and target in EXACT:
        return EXACT.index(source) <= EXACT.index(target)
    return source in ("text", "character varying") and target == "text"
