"""What a synthesis asks of the protected relations, as statements of its own.

One statement counts a table by what is learnt of it, one for each foreign key the joined rows by
what is learnt of both ends and of what they refer to, and one the children of each parent.  They
are admitted as anybody's releases and questions are: rights, units and public domains are
checked there (PRIVACY.md sections 1, 2 and 8).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from dpsql.relation import quote_identifier
from dpsql.synthesis.schema import Plan, Planned

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
        shown, joined = [], []
        for path, k in columns:
            item = self._learnt[reached(self._plan, self._place, path)][k]
            if item.what is What.PARENT:
                extra = (*path, item.place)
                needed.add(extra)
                shown.append(f"{_alias(extra)}.g0")
            else:
                shown.append(f"{_alias(path)}.x{k}")
        for path in sorted(needed, key=lambda p: (len(p), p)):
            joined.append(self._joined(path, needed))
        groups = ", ".join(f"({text})" for text in shown)
        text = f"SELECT {', '.join([*shown, f'{self._count}(*)'])} FROM {' '.join(joined)}"
        if parent is not None:
            key = self._plan.tables[self._place].references[parent].key
            shown = [f"t.f{parent}_{j}" for j in range(len(key.columns))] + shown
            listed = ", ".join(shown)
            text = f"SELECT {listed}, {self._count}(*) FROM {' '.join(joined)} GROUP BY {listed}"
        elif shown:
            text += f" GROUP BY GROUPING SETS ({groups})"
        return Ask(text, tuple(columns))

    def children(self, k: int, unit: str | None = None) -> str:
        """Count the rows that refer to each parent by one reference.

        Where parents belong to units, ``unit`` is the column of the key that names these: it is no
        group, and rows are told apart by units anyway.
        """
        planned = self._plan.tables[self._place]
        key = planned.references[k].key
        columns = [quote_identifier(name) for name in key.columns if name != unit]
        there = " AND ".join(f"t.{name} IS NOT NULL" for name in columns)
        listed = ", ".join(f"t.{name}" for name in columns)
        where = f" WHERE {there}" if planned.references[k].nullable else ""
        return (
            f"SELECT {listed}, {self._count}(*) FROM {_named(planned)} AS t{where}"
            f" GROUP BY {listed}"
        )

    def _joined(self, path: Path, needed: set[Path]) -> str:
        place = reached(self._plan, self._place, path)
        planned = self._plan.tables[place]
        items = [
            (expression(planned, item), f"x{k}")
            for k, item in enumerate(self._learnt[place])
            if item.what is not What.PARENT
        ]
        for k, reference in enumerate(planned.references):
            if (*path, k) in needed:
                items += [
                    (quote_identifier(c), f"f{k}_{j}") for j, c in enumerate(reference.key.columns)
                ]
        on = ""
        if path:
            parent = self._plan.tables[reached(self._plan, self._place, path[:-1])]
            key = parent.references[path[-1]].key
            items += [(quote_identifier(c), f"g{j}") for j, c in enumerate(key.parent_columns)]
            child = _alias(path[:-1])
            on = " AND ".join(
                f"{child}.f{path[-1]}_{j} = {_alias(path)}.g{j}" for j in range(len(key.columns))
            )
        listed = ", ".join(f"{sql} AS {name}" for sql, name in items)
        source = f"(SELECT {listed or '1 AS one'} FROM {_named(planned)} AS s) AS {_alias(path)}"
        return f"JOIN {source} ON {on}" if path else source


def expression(planned: Planned, item: Learned) -> str:
    """Write what is learnt over a table's own columns."""
    if item.what is What.ATTRIBUTE:
        return planned.attributes[item.place].expression
    columns = planned.references[item.place].key.columns
    return "(" + " OR ".join(f"{quote_identifier(c)} IS NULL" for c in columns) + ")"


def _named(planned: Planned) -> str:
    table = planned.table
    return f"{quote_identifier(table.schema)}.{quote_identifier(table.name)}"


def _alias(path: Path) -> str:
    return "t" + "".join(f"_{k}" for k in path)
