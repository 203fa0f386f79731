"""Counts the rows of a plan's tables by what is learnt of them, many marginals in one statement.

Of synthetic tables with the rights of whoever made them, or of the original ones with those of
their owner (PRIVACY.md section 8): nothing here is measured, and no noise is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sqlglot import exp

from dpsql.engine.synthesis_ask import (
    Joined,
    Learned,
    Path,
    What,
    alias_of,
    expression,
    from_paths,
    is_null,
    linked,
    not_null,
    reached,
    same_key,
)
from dpsql.relation import quote_identifier
from dpsql.sqltree import Tree, aliased, all_of, column, equal, render, select, sql
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
        A table, for FROM.
    database : Reads
    """

    def __init__(
        self,
        plan: Plan,
        learnt: Sequence[tuple[Learned, ...]],
        named: Callable[[int], exp.Table],
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
        at = {c: n for n, c in enumerate(columns)}
        found: dict[Marginal, dict[Hashable, float]] = {m: {} for m in marginals}
        shown = [column(alias_of(path), f"x{k}") for path, k in columns]
        sets: list[Tree] = [
            exp.Tuple(expressions=[shown[at[c]] for c in marginal.columns])
            for marginal in marginals
        ]
        whole = (1 << len(columns)) - 1
        which = {
            whole - sum(1 << (len(columns) - 1 - at[c]) for c in marginal.columns): marginal
            for marginal in marginals
        }
        counted = [
            sql("CAST(grouping(:shown) AS bigint) AS which", shown=shown),
            sql("ARRAY[:texts] AS cell", texts=[sql("CAST(:x AS text)", x=x) for x in shown]),
            sql("count(*) AS n"),
        ]
        statement = select(counted, self._joined(place, columns))
        statement.set("group", exp.Group(expressions=[exp.GroupingSets(expressions=sets)]))
        for bits, cell, n in self.database.execute(render(statement)):
            marginal = which[int(str(bits))]
            key = tuple(cell[at[c]] for c in marginal.columns)  # type: ignore[index]
            found[marginal][key] = int(str(n))
        self.database.tick()
        return dict(found)

    def _joined(self, place: int, columns: Sequence[Column]) -> exp.Select:
        needed = {path[:n] for path, _ in columns for n in range(len(path) + 1)} | {()}

        def joined(path: Path) -> Joined:
            here = reached(self._plan, place, path)
            planned, learnt = self._plan.tables[here], self._learnt[here]
            shown: list[Tree] = [
                aliased(level(planned, learnt[k]), f"x{k}") for other, k in columns if other == path
            ]
            shown += linked(self._plan, place, path, needed)
            return Joined(shown, self.named(here), same_key(self._plan, place, path))

        return from_paths(needed, joined)

    def rows(self, place: int) -> int:
        """Count a table."""
        return self._number(sql("SELECT count(*) AS n FROM :rows AS s", rows=self.named(place)))

    def _number(self, statement: exp.Select) -> int:
        """Read one number."""
        return int(str(self.database.execute(render(statement))[0][0]))

    def degrees(self, place: int, k: int) -> dict[int, int]:
        """Count the parents of a reference by their number of children, if they have any."""
        columns = _of("s", self._plan.tables[place].references[k].key.columns)
        statement = sql(
            "SELECT d.n AS degree, count(*) AS parents FROM (SELECT count(*) AS n"
            " FROM :rows AS s WHERE :there GROUP BY :columns) AS d GROUP BY d.n",
            rows=self.named(place),
            there=not_null(columns),
            columns=columns,
        )
        rows = self.database.execute(render(statement))
        return {int(str(degree)): int(str(parents)) for degree, parents in rows}

    def orphans(
        self, place: int, columns: Sequence[str], parent: int, theirs: Sequence[str]
    ) -> int:
        """Count rows that refer to no row: of a key with a NULL none does."""
        own = _of("s", columns)
        statement = sql(
            "SELECT count(*) AS n FROM :rows AS s WHERE :there"
            " AND NOT EXISTS (SELECT FROM :parents AS p WHERE :same)",
            rows=self.named(place),
            there=not_null(own),
            parents=self.named(parent),
            same=all_of(map(equal, _of("p", theirs), own)),
        )
        return self._number(statement)

    def duplicates(self, place: int, columns: Sequence[str], *, nulls_distinct: bool) -> int:
        """Count rows whose key another row has before them."""
        own = _of("s", columns)
        statement = sql(
            "SELECT CAST(coalesce(sum(d.n - 1), 0) AS bigint) AS n FROM (SELECT count(*) AS n"
            " FROM :rows AS s WHERE :there GROUP BY :columns) AS d",
            rows=self.named(place),
            there=not_null(own) if nulls_distinct else None,
            columns=own,
        )
        return self._number(statement)

    def nulls(self, place: int, columns: Sequence[str]) -> int:
        """Count rows with a NULL in any of some columns."""
        if not columns:
            return 0
        statement = sql(
            "SELECT count(*) AS n FROM :rows AS s WHERE :lacking",
            rows=self.named(place),
            lacking=is_null(_of("s", columns)),
        )
        return self._number(statement)


def _of(source: str, columns: Sequence[str]) -> list[Tree]:
    return [column(source, quote_identifier(c)) for c in columns]


def level(planned: Planned, item: Learned) -> Tree:
    """Return what is learnt over a table's own columns; of a parent the key that refers to it."""
    if item.what is What.PARENT:
        return column("", quote_identifier(planned.references[item.place].key.columns[0]))
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
