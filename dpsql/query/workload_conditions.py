"""What one query of a release says in WHERE and others do not: conditions on levels of keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dpsql.errors import UnsupportedConstruct
from dpsql.query.asked import Condition, Predicate
from dpsql.query.ir import TRUE, Expr, render
from dpsql.query.others import mapped, others_of
from dpsql.query.over_keys import OverKeys
from dpsql.relation import Relation

_CONNECTIVES = ("and", "or", "not")


class LevelConditions:
    """Writes conditions over the keys of a workload; columns that are none become keys.

    Parameters
    ----------
    keys : list of Expr
        The keys; it grows.
    key : callable
        Makes a key with a name and returns its number.
    relations : sequence of Relation
        The occurrences, with declared domains.
    """

    def __init__(
        self, keys: list[Expr], key: Callable[[Expr, str], int], relations: Sequence[Relation]
    ) -> None:
        self.keys = keys
        self._key = key
        self.relations = relations

    def where(
        self, conditions: Sequence[Expr], query: int, position: int | None
    ) -> tuple[Predicate, ...]:
        """Write the conditions of a query of the union, counted from 1.

        Raises
        ------
        UnsupportedConstruct
            Where the levels of keys do not tell whether rows meet a condition.
        """
        found = []
        for condition in conditions:
            arms = self._disjuncts(condition)
            if TRUE in arms:
                continue
            arms = [arm for arm in arms if arm.kind != "const"]  # false or NULL
            if not arms:
                raise UnsupportedConstruct(
                    f"a condition of query {query} is never true",
                    detail="Each of its counts would be 0.",
                    hint="Leave the query out.",
                    position=position,
                )
            found.append(self._predicate(arms, position))
        return tuple(found)

    def _predicate(self, arms: Sequence[Expr], position: int | None) -> Predicate:
        """Write a conjunct as a condition on levels; a disjunction as several on other columns."""
        groups: list[list[Expr]] = []
        for arm in arms:
            near = [g for g in groups if any(arm.columns() & a.columns() for a in g)]
            groups = [g for g in groups if g not in near]
            groups.append([*(a for g in near for a in g), arm])
        return Predicate(tuple(self._condition(_either(g), position) for g in groups))

    def _condition(self, e: Expr, position: int | None) -> Condition:
        columns = [c for c in e.walk() if c.kind == "col"]
        if not columns:
            raise UnsupportedConstruct(
                "a condition without columns is not supported in one query of several",
                hint="Leave it out.",
                position=position,
            )
        known = dict.fromkeys((*self.keys, *(mapped(c, self.relations) for c in columns)))
        levels = OverKeys(self._place, known)
        written = levels.write(e)
        if written is None:
            raise _unwritten(levels.reason, columns, position)
        atoms = dict.fromkeys(self._atoms(e)) if e.kind in _CONNECTIVES else {}
        return Condition(
            render(written),
            frozenset(levels.used),
            tuple(self._condition(a, position) for a in atoms if a != e),
            tree=written,
        )

    def _place(self, e: Expr) -> int | None:
        """Find the key that an expression is; columns, as they are grouped by, become keys."""
        if e in self.keys:
            return self.keys.index(e)
        others = others_of(e)
        source = e if others is None else others.column
        if source.kind != "col" or mapped(source, self.relations) != e:
            return None
        return self._key(e, str(source.data[1]))  # type: ignore[index]

    def _disjuncts(self, e: Expr) -> list[Expr]:
        if e.kind == "or" and e not in self.keys:
            return [arm for argument in e.args for arm in self._disjuncts(argument)]
        return [e]

    def _atoms(self, e: Expr) -> list[Expr]:
        """List what a condition is made of by AND, OR and NOT, but for constants."""
        if e.kind in _CONNECTIVES and e not in self.keys:
            return [atom for argument in e.args for atom in self._atoms(argument)]
        return [e] if e.columns() else []


def _either(arms: list[Expr]) -> Expr:
    return arms[0] if len(arms) == 1 else Expr("or", "boolean", tuple(arms))


def _unwritten(reason: str, columns: Sequence[Expr], position: int | None) -> UnsupportedConstruct:
    """Say why a condition cannot be evaluated on levels."""
    names = ", ".join(dict.fromkeys(str(c.data[1]) for c in columns))  # type: ignore[index]
    if reason == "other":
        return UnsupportedConstruct(
            f"a condition on {names} tells values apart that count as one",
            detail="It is evaluated on the levels of a declared domain with a value for all others,"
            " in a union whose other queries count rows that do not meet it.",
            hint="Compare the column by =, <>, IN or NOT IN with values of its domain, or ask"
            " whether it is NULL; a condition that all queries have may be any.",
            position=position,
        )
    return UnsupportedConstruct(
        f"a condition on {names} may tell equal values apart, such as 1.0 and 1.00",
        detail="It is evaluated on the levels of keys, of which equal values are one, in a union"
        " whose other queries count rows that do not meet it.",
        hint="Compare the values themselves, without a cast to text; a condition that all queries"
        " have may be any.",
        position=position,
    )
