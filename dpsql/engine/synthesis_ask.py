"""What a synthesis asks of the protected relations, as statements of its own.

One statement counts a table by what is learnt of it, one for each foreign key the joined rows by
what is learnt of both ends and of what they refer to, and one the children of each parent.  They
are admitted as anybody's releases and questions are: rights, units and public domains are
checked there (PRIVACY.md sections 1, 2 and 8).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from sqlglot import exp

from dpsql.errors import InternalError
from dpsql.relation import quote_identifier
from dpsql.sqltree import (
    Tree,
    aliased,
    all_of,
    any_of,
    call,
    column,
    equal,
    join,
    raw,
    render,
    select,
    sql,
    subquery,
    table,
)
from dpsql.synthesis.schema import ForeignKey, Plan, Planned

#: Attributes that one statement counts by.
MOST_ATTRIBUTES = 40
#: How far up what a row refers to is looked at.
MOST_STEPS = 2

#: Places of references, one after the other, from a row to what it refers to.
Path = tuple[int, ...]


class What(Enum):
    """What a column of codes says of a row."""

    ATTRIBUTE = "attribute"  #: the level of a column
    MISSING = "missing"  #: whether a reference is NULL
    PARENT = "parent"  #: which row of a small public table is referred to


@dataclass(frozen=True, slots=True)
class Learned:
    """One thing that is learnt of the rows of a table.

    ``place`` is that of the attribute, or of the reference, in the plan's table.
    """

    what: What
    place: int


@dataclass(frozen=True, slots=True)
class Ask:
    """A statement with the columns that it counts by: paths, and places among what is learnt."""

    text: str
    columns: tuple[tuple[Path, int], ...]


def learned(planned: Planned, small: Iterable[int] = ()) -> tuple[Learned, ...]:
    """List what is learnt of a table's rows.

    Parameters
    ----------
    planned : Planned
        The table.
    small : iterable of int
        Its references to public tables of few rows: which one is learnt as an attribute is.
    """
    found = [Learned(What.ATTRIBUTE, k) for k in range(len(planned.attributes))]
    few = frozenset(small)
    for k, reference in enumerate(planned.references):
        if k in few:
            found.append(Learned(What.PARENT, k))
        elif reference.nullable:
            found.append(Learned(What.MISSING, k))
    return tuple(found)


def reached(plan: Plan, place: int, path: Path) -> int:
    """Return the table that a path from a row of a table leads to."""
    for k in path:
        place = plan.tables[place].references[k].parent
    return place


def paths(plan: Plan, place: int, before: int | None = None) -> Iterator[Path]:
    """List the ways from a row to what it surely refers to, itself first.

    Parameters
    ----------
    plan : Plan
    place : int
        The row's table.
    before : int, optional
        Only by references whose links are there when this one's are generated.
    """
    waiting: list[Path] = [()]
    while waiting:
        path = waiting.pop(0)
        yield path
        if len(path) == MOST_STEPS:
            continue
        table = reached(plan, place, path)
        for k, reference in enumerate(plan.tables[table].references):
            own = before is None or path or k < before
            if own and not reference.nullable and reference.parent != table:
                waiting.append((*path, k))


class Statement:
    """Writes one statement over a table and what its rows refer to.

    Parameters
    ----------
    plan : Plan
    place : int
        The table whose rows are counted.
    learnt : sequence
        For each table of the plan what is learnt of it.
    count : str
        The name of ``dp_count``, qualified.
    """

    def __init__(
        self, plan: Plan, place: int, learnt: Sequence[tuple[Learned, ...]], count: str
    ) -> None:
        self._plan, self._place, self._learnt, self._count = plan, place, learnt, count

    def by(self, columns: Sequence[tuple[Path, int]], parent: int | None = None) -> Ask:
        """Count by each of the columns; with ``parent``, by the keys of a reference and all."""
        needed = {path[:n] for path, _ in columns for n in range(len(path) + 1)} | {()}
        shown: list[Tree] = []
        for path, k in columns:
            item = self._learnt[reached(self._plan, self._place, path)][k]
            if item.what is What.PARENT:
                extra = (*path, item.place)
                needed.add(extra)
                shown.append(column(alias_of(extra), "g0"))
            else:
                shown.append(column(alias_of(path), f"x{k}"))
        joined = from_paths(needed, lambda path: self._joined(path, needed))
        if parent is not None:
            key = self._plan.tables[self._place].references[parent].key
            own = [column("t", f"f{parent}_{j}") for j in range(len(key.columns))]
            return Ask(self._counted([*own, *shown], joined, [*own, *shown]), tuple(columns))
        groups: list[Tree] = [exp.Paren(this=one) for one in shown]
        sets = [exp.GroupingSets(expressions=groups)] if groups else []
        return Ask(self._counted(shown, joined, sets), tuple(columns))

    def _counted(self, shown: Sequence[Tree], source: exp.Select, groups: Sequence[Tree]) -> str:
        """Write a statement that counts the rows of ``source``."""
        statement = select([*shown, call(self._count, exp.Star())], source)
        if groups:
            statement.set("group", exp.Group(expressions=list(groups)))
        return render(statement)

    def children(self, k: int, unit: str | None = None) -> str:
        """Count the rows that refer to each parent by one reference.

        Where parents belong to units, ``unit`` is the column of the key that names these: it is no
        group, and rows are told apart by units anyway.
        """
        planned = self._plan.tables[self._place]
        key = planned.references[k].key
        columns = [column("t", quote_identifier(c)) for c in key.columns if c != unit]
        there = not_null(columns) if planned.references[k].nullable else None
        source = sql("SELECT 1 FROM :rows AS t WHERE :there", rows=_named(planned), there=there)
        return self._counted(columns, source, columns)

    def _joined(self, path: Path, needed: set[Path]) -> Joined:
        place = reached(self._plan, self._place, path)
        planned = self._plan.tables[place]
        items: list[Tree] = [
            aliased(expression(planned, item), f"x{k}")
            for k, item in enumerate(self._learnt[place])
            if item.what is not What.PARENT
        ]
        items += linked(self._plan, self._place, path, needed)
        return Joined(items, _named(planned), same_key(self._plan, self._place, path))


@dataclass(frozen=True, slots=True)
class Joined:
    """The table that a path leads to: the columns that are read, and how its rows are joined."""

    columns: Sequence[Tree]
    rows: exp.Table
    condition: Tree | None


def from_paths(needed: Iterable[Path], joined: Callable[[Path], Joined]) -> exp.Select:
    """Join rows with what they refer to, as ``t`` and ``t_<reference>...``."""
    found: exp.Select | None = None
    for path in sorted(needed, key=lambda p: (len(p), p)):
        here = joined(path)
        listed = here.columns or [sql("1 AS one")]
        query = sql("SELECT :listed FROM :rows AS s", listed=listed, rows=here.rows)
        source = subquery(query, alias_of(path))
        if found is None:
            found = exp.Select(from_=exp.From(this=source))
        else:
            found.append("joins", join(source, here.condition))
    if found is None:
        raise InternalError("a statement joins no table")
    return found


def linked(plan: Plan, place: int, path: Path, needed: set[Path]) -> list[Tree]:
    """Return the columns by which the rows of a path are joined, with both sides."""
    found: list[Tree] = []
    for k, reference in enumerate(plan.tables[reached(plan, place, path)].references):
        if (*path, k) in needed:
            found += [aliased(_own(c), f"f{k}_{j}") for j, c in enumerate(reference.key.columns)]
    if path:
        theirs = _key(plan, place, path).parent_columns
        found += [aliased(_own(c), f"g{j}") for j, c in enumerate(theirs)]
    return found


def same_key(plan: Plan, place: int, path: Path) -> Tree | None:
    """Return which rows a row refers to by the last step of a path; ``None`` without any."""
    if not path:
        return None
    child, own = alias_of(path[:-1]), alias_of(path)
    number = len(_key(plan, place, path).columns)
    return all_of(
        equal(column(child, f"f{path[-1]}_{j}"), column(own, f"g{j}")) for j in range(number)
    )


def _key(plan: Plan, place: int, path: Path) -> ForeignKey:
    """Return the key of the last step of a path."""
    return plan.tables[reached(plan, place, path[:-1])].references[path[-1]].key


def is_null(columns: Iterable[Tree]) -> Tree | None:
    """Return that one of some columns is NULL."""
    return any_of(sql(":column IS NULL", column=c) for c in columns)


def not_null(columns: Iterable[Tree]) -> Tree | None:
    """Return that none of some columns is NULL."""
    return all_of(sql(":column IS NOT NULL", column=c) for c in columns)


def expression(planned: Planned, item: Learned) -> Tree:
    """Return what is learnt over a table's own columns."""
    if item.what is What.ATTRIBUTE:
        return raw(planned.attributes[item.place].expression)
    columns = planned.references[item.place].key.columns
    return exp.Paren(this=is_null(map(_own, columns)))


def _own(text: str) -> exp.Column:
    return column("", quote_identifier(text))


def _named(planned: Planned) -> exp.Table:
    own = planned.table
    return table(f"{quote_identifier(own.schema)}.{quote_identifier(own.name)}")


def alias_of(path: Path) -> str:
    """Name the rows that a path leads to."""
    return "t" + "".join(f"_{k}" for k in path)
