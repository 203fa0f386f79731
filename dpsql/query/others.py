"""Columns whose other values count as one: ``dp.set_domain(..., other => 'other')``.

Grouped by, such a column stands for an expression over it, `mapped`: a listed value is itself,
NULL is NULL, and anything else is the declared value.  This is a function of one row, which moves
rows between groups and neither makes nor removes any: neighbours differ by the same rows as before,
so that every sensitivity is that of the same question by any other expression (PRIVACY.md sections
1 and 4).  Its values are public: the declared ones (section 6).

Conditions, joins and sums read the column itself.  A condition that says one thing of all values
that are not listed can be evaluated on the levels of the expression (`is_told`); one that compares
the column with the value for all others would count rows that have it themselves, and is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from dpsql.errors import UnsupportedConstruct
from dpsql.query.graph import bare
from dpsql.query.ir import Expr, constant
from dpsql.query.types import FLOATS
from dpsql.relation import Domain, Relation

_COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")


@dataclass(frozen=True, slots=True)
class Others:
    """An expression that is a ``column`` where that is ``listed``, and else ``other`` or NULL."""

    column: Expr
    listed: tuple[Expr, ...]
    other: Expr

    def values(self) -> list[Expr]:
        """Return what the expression can be, but for NULL."""
        return [*self.listed, self.other]


def domain_with_other(e: Expr, relations: Sequence[Relation]) -> Domain | None:
    """Find the domain of a column of a protected relation, if it has a value for all others."""
    if e.kind != "col":
        return None
    occurrence, name = e.data[:2]  # type: ignore[index]
    if not relations[occurrence].private:
        return None
    return next(
        (
            d
            for d in relations[occurrence].domains
            if d.column == name and d.listed and d.other is not None
        ),
        None,
    )


def mapped(key: Expr, relations: Sequence[Relation]) -> Expr:
    """Write what a group key stands for: of a column whose other values count as one, that."""
    domain = domain_with_other(key, relations)
    if domain is None:
        return key
    listed = tuple(constant(key.type, v) for v in domain.values)
    inside = Expr("in", "boolean", (key, *listed), data=False)
    missing = Expr("is", "boolean", (key,), "NULL")
    other = constant(key.type, domain.other)
    arms = (inside, key, missing, constant(key.type, None), other)
    return Expr("case", key.type, arms)


def others_of(e: Expr) -> Others | None:
    """Read an expression of the form that `mapped` writes."""
    if e.kind != "case" or len(e.args) != 5 or e.type in (*FLOATS, "interval"):
        return None
    inside, column, missing, null, other = e.args
    if inside.kind != "in" or inside.data or column.kind != "col" or column.type != e.type:
        return None
    own, *listed = inside.args
    if own != column or missing != Expr("is", "boolean", (column,), "NULL"):
        return None
    constants = (*listed, null, other)
    if any(c.kind != "const" or c.type != e.type for c in constants):
        return None
    if null.data is not None or any(c.data is None for c in (*listed, other)):
        return None
    if _key(other) in map(_key, listed):
        return None
    return Others(column, tuple(listed), other)


def _key(value: Expr) -> Decimal | str:
    """Return what equal values share, where an analyst wrote them: 1.0 and 1.00, padded texts."""
    text = str(value.data)
    if value.type == "bpchar":
        return text.rstrip(" ")
    if value.type == "numeric" and (number := Decimal(text)).is_finite():
        return number
    return text


def declared_others(
    keys: Iterable[Expr], relations: Sequence[Relation]
) -> tuple[tuple[str, str], ...]:
    """Name the columns that `mapped` keys stand for, each with the value for all others."""
    found = ((o, mapped(o.column, relations) == key) for key in keys if (o := others_of(key)))
    return tuple(
        (str(others.column.data[1]), str(others.other.data))  # type: ignore[index]
        for others, own in found
        if own
    )


def is_told(e: Expr, others: Others) -> bool:
    """Tell whether a condition on this column is one and the same for all other values.

    It asks whether the column is NULL or compares it for equality with listed values: of the
    expression it says what it says of the column.
    """
    if e.kind == "is":
        return e.data in ("NULL", "NOT NULL") and e.args[0] == others.column
    equal = e.kind in ("in", "distinct") or (e.kind == "op" and e.data in ("=", "<>"))
    if not equal or len(e.args) < 2 or bare(e.args[0]) != others.column:
        return False
    known = {v.data for v in others.listed}
    return all(
        v.kind == "const" and v.data in known and bare(v) == v and _is_alike(v, others.column)
        for v in e.args[1:]
    )


def _is_alike(value: Expr, column: Expr) -> bool:
    """Whether a constant's text is that of an equal value of the column's type."""
    texts = ("text", "character varying", "bpchar")
    return value.type == column.type or (value.type in texts and column.type in texts)


def require_not_compared(expressions: Iterable[Expr], relations: Sequence[Relation]) -> None:
    """Refuse comparisons of a column with the value that stands for its others.

    Raises
    ------
    UnsupportedConstruct
        Says what counts these: the column is none of the listed values.
    """
    seen: set[Expr] = set()
    for expression in expressions:
        for e in expression.walk():
            if e in seen or e.kind not in ("op", "in", "distinct", "nullif"):
                continue
            seen.add(e)
            if e.kind == "op" and e.data not in _COMPARISONS:
                continue
            _require(e, relations)


def _require(e: Expr, relations: Sequence[Relation]) -> None:
    for column in map(bare, e.args):
        domain = domain_with_other(column, relations)
        if domain is None:
            continue
        texts = {str(a.data) for a in map(bare, e.args) if a.kind == "const" and a.data is not None}
        if column.type == "bpchar":
            texts |= {text.rstrip(" ") for text in texts}
        if domain.other in texts:
            name = str(column.data[1])  # type: ignore[index]
            few = ", ".join(f"'{v}'" for v in domain.values[:3])
            more = ", ..." if len(domain.values) > 3 else ""
            raise UnsupportedConstruct(
                f"{name} is compared with {domain.other}, which stands for all values outside of"
                " its declared domain",
                detail="A condition looks at the column itself, so that this would count something"
                f" else than the group {domain.other}.",
                hint=f"Write {name} NOT IN ({few}{more}), with all values of the domain:"
                " SELECT * FROM dp.domains;",
            )
