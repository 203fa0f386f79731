"""Counts the rows of a plan's tables by what is learnt of them, many marginals in one statement.

Of synthetic tables with the rights of whoever made them, or of the original ones with those of
their owner (PRIVACY.md section 8): nothing here is measured, and no noise is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dpsql.engine.synthesis_ask import Learned, Path, What, expression, reached
from dpsql.relation import quote_identifier
from dpsql.synthesis.schema import Plan, Planned

#: Columns of one statement: ``grouping()`` takes no more; and marginals of one.
_COLUMNS = 31
_SETS = 100

#: A path from a row, and a place among what is learnt of the table that it leads to.
Column = tuple[Path, int]
#: How often each combination of texts occurs.
Counts = Mapping[Hashable, float]


@dataclass(frozen=True, slots=True)
class Marginal:
    """Rows of a table by columns of theirs and of what they refer to.

    Attributes
    ----------
    place : int
        The table.
    columns : tuple of Column
        All different.
    """

    place: int
    columns: tuple[Column, ...]


class Reads(Protocol):
    """What reads tables; with whose rights is its own matter."""

    def execute(self, sql: str) -> list[tuple[object, ...]]:
        """Run one statement."""
        ...

    def tick(self) -> None:
        """Give the server a chance to cancel."""
        ...


@dataclass(frozen=True, slots=True)
class AsOwner:
    """Reads with the rights of a relation's owner, who may have put code where reading runs it.

    Attributes
    ----------
    reads : Reads
    relation : int
        Its OID.
    act : callable
        Runs what it is given as the owner of the relation.
    """

    reads: Reads
    relation: int
    act: Callable[[int, Callable[[], Any]], Any]

    def execute(self, sql: str) -> list[tuple[object, ...]]:
        """Run one statement."""
        found: list[tuple[object, ...]] = self.act(self.relation, lambda: self.reads.execute(sql))
        return found

    def tick(self) -> None:
        """Give the server a chance to cancel."""
        self.reads.tick()


class Counter:
    """Counts marginals of one set of tables.

    Parameters
    ----------
    plan : Plan
    learnt : sequence
        For each table what is learnt of it.
    named : callable
        The quoted name of a table.
    database : Reads
    """

    def __init__(
        self,
        plan: Plan,
        learnt: Sequence[tuple[Learned, ...]],
        named: Callable[[int], str],
        database: Reads,
    ) -> None:
        self._plan, self._learnt = plan, learnt
        self.named, self.database = named, database

    def marginals(self, asked: Iterable[Marginal]) -> dict[Marginal, Counts]:
        """Count; a row that refers to nothing by a path of a marginal is not in it."""
        found: dict[Marginal, Counts] = {}
        waiting: dict[tuple[int, frozenset[Path]], list[Marginal]] = {}
        for marginal in dict.fromkeys(asked):
            joined = frozenset(path for path, _ in marginal.columns)
            waiting.setdefault((marginal.place, joined), []).append(marginal)
        for (place, _), group in waiting.items():
            for some in _statements(group):
                found.update(self._read(place, some))
        return found

    def _read(self, place: int, marginals: Sequence[Marginal]) -> dict[Marginal, Counts]:
        columns = list(dict.fromkeys(c for m in marginals for c in m.columns))
        at = {column: n for n, column in enumerate(columns)}
        found: dict[Marginal, dict[Hashable, float]] = {m: {} for m in marginals}
        names = [f"{_alias(path)}.x{k}" for path, k in columns]
        sets = ", ".join(
            "(" + ", ".join(names[at[c]] for c in marginal.columns) + ")" for marginal in marginals
        )
        texts = ", ".join(f"({name})::text" for name in names)
        whole = (1 << len(columns)) - 1
        which = {
            whole - sum(1 << (len(columns) - 1 - at[c]) for c in marginal.columns): marginal
            for marginal in marginals
        }
        rows = self.database.execute(
            f"SELECT grouping({', '.join(names)})::int8 AS which, ARRAY[{texts}] AS cell,"
            f" count(*) AS n FROM {self._joined(place, columns)} GROUP BY GROUPING SETS ({sets})"
        )
        for bits, cell, n in rows:
            marginal = which[int(str(bits))]
            key = tuple(cell[at[c]] for c in marginal.columns)  # type: ignore[index]
            found[marginal][key] = int(str(n))
        self.database.tick()
        return dict(found)

    def _joined(self, place: int, columns: Sequence[Column]) -> str:
        needed = {path[:n] for path, _ in columns for n in range(len(path) + 1)} | {()}
        parts = []
        for path in sorted(needed, key=lambda p: (len(p), p)):
            planned = self._plan.tables[reached(self._plan, place, path)]
            shown = [
                (level(planned, self._learnt[reached(self._plan, place, path)][k]), f"x{k}")
                for other, k in columns
                if other == path
            ]
            for k, reference in enumerate(planned.references):
                if (*path, k) in needed:
                    own = enumerate(reference.key.columns)
                    shown += [(quote_identifier(c), f"f{k}_{j}") for j, c in own]
            on = ""
            if path:
                above = self._plan.tables[reached(self._plan, place, path[:-1])]
                theirs = above.references[path[-1]].key.parent_columns
                shown += [(quote_identifier(c), f"g{j}") for j, c in enumerate(theirs)]
                child, own_alias = _alias(path[:-1]), _alias(path)
                on = " AND ".join(
                    f"{child}.f{path[-1]}_{j} = {own_alias}.g{j}" for j in range(len(theirs))
                )
            listed = ", ".join(f"{sql} AS {name}" for sql, name in shown) or "1 AS one"
            table = self.named(reached(self._plan, place, path))
            source = f"(SELECT {listed} FROM {table} AS s) AS {_alias(path)}"
            parts.append(f"JOIN {source} ON {on}" if path else source)
        return " ".join(parts)

    def rows(self, place: int) -> int:
        """Count a table."""
        return self.number(f"SELECT count(*) AS n FROM {self.named(place)} AS s")

    def number(self, sql: str) -> int:
        """Read one number."""
        return int(str(self.database.execute(sql)[0][0]))

    def degrees(self, place: int, k: int) -> dict[int, int]:
        """Count the parents of a reference by their number of children, if they have any."""
        columns = [
            f"s.{quote_identifier(c)}" for c in self._plan.tables[place].references[k].key.columns
        ]
        there = " AND ".join(f"{c} IS NOT NULL" for c in columns)
        rows = self.database.execute(
            f"SELECT d.n AS degree, count(*) AS parents FROM (SELECT count(*) AS n"
            f" FROM {self.named(place)} AS s WHERE {there} GROUP BY {', '.join(columns)}) AS d"
            " GROUP BY d.n"
        )
        return {int(str(degree)): int(str(parents)) for degree, parents in rows}

    def orphans(
        self, place: int, columns: Sequence[str], parent: int, theirs: Sequence[str]
    ) -> int:
        """Count rows that refer to no row: of a key with a NULL none does."""
        own = [f"s.{quote_identifier(c)}" for c in columns]
        there = " AND ".join(f"{c} IS NOT NULL" for c in own)
        same = " AND ".join(
            f"p.{quote_identifier(c)} = {mine}" for c, mine in zip(theirs, own, strict=True)
        )
        return self.number(
            f"SELECT count(*) AS n FROM {self.named(place)} AS s WHERE {there}"
            f" AND NOT EXISTS (SELECT FROM {self.named(parent)} AS p WHERE {same})"
        )

    def duplicates(self, place: int, columns: Sequence[str], *, nulls_distinct: bool) -> int:
        """Count rows whose key another row has before them."""
        own = [f"s.{quote_identifier(c)}" for c in columns]
        there = " AND ".join(f"{c} IS NOT NULL" for c in own) if nulls_distinct else "true"
        return self.number(
            f"SELECT coalesce(sum(d.n - 1), 0)::int8 AS n FROM (SELECT count(*) AS n"
            f" FROM {self.named(place)} AS s WHERE {there} GROUP BY {', '.join(own)}) AS d"
        )

    def nulls(self, place: int, columns: Sequence[str]) -> int:
        """Count rows with a NULL in any of some columns."""
        if not columns:
            return 0
        null = " OR ".join(f"s.{quote_identifier(c)} IS NULL" for c in columns)
        return self.number(f"SELECT count(*) AS n FROM {self.named(place)} AS s WHERE {null}")


def level(planned: Planned, item: Learned) -> str:
    """Write what is learnt over a table's own columns; of a parent the key that refers to it."""
    if item.what is What.PARENT:
        return quote_identifier(planned.references[item.place].key.columns[0])
    return expression(planned, item)


def _statements(marginals: Sequence[Marginal]) -> list[list[Marginal]]:
    found: list[list[Marginal]] = []
    columns: set[Column] = set()
    for marginal in marginals:
        more = columns | set(marginal.columns)
        if not found or len(more) > _COLUMNS or len(found[-1]) == _SETS:
            found.append([])
            more = set(marginal.columns)
        found[-1].append(marginal)
        columns = more
    return found


def _alias(path: Path) -> str:
    return "t" + "".join(f"_{k}" for k in path)
