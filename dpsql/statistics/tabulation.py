"""The rows of a workload as codes of levels: from SQL straight into arrays, marginals from those.

The server groups by all keys and numbers their levels; what comes back is one integer (or few) and
a count for each combination that occurs, which are no more than rows or cells.  Every marginal is
one pass over these arrays.  Where they do not fit, the server counts the marginals, many in one
statement.  Exact and secret (PRIVACY.md section 2).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import NotAnswerable
from dpsql.model import JoinQuery
from dpsql.ports import Database
from dpsql.statistics.arrays import NotInArrays
from dpsql.statistics.reading import MAX_COLUMNS, fetch, unpack
from dpsql.statistics.running import by_steps, in_either
from dpsql.statistics.tabulation_sql import Levels, stratum_levels, tabulation_sql

Ints = NDArray[np.int64]

#: Bytes of codes and counts that are read at most.
MEMORY_LIMIT = 512 << 20
_WORD = 1 << 62
_EXACT_FLOAT = 1 << 53
#: Bytes of a code and a count of a marginal at most, and of one of many.
_A_CELL = 16
_A_CELL_OF_MANY = 24
#: Marginals that one statement counts.
_TOGETHER = 64
#: Combinations that are looked at in one go.
_PIECE = 1 << 18


class Tabulation:
    """Combinations of levels that occur, and how often.

    Parameters
    ----------
    sizes : sequence of int
        Levels of the attributes.
    codes : list of array of unsigned integers
        For each attribute the level of each combination.
    counts : array of int64
        How many rows have the combination.
    tick : callable
        Called now and then; may raise.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        codes: Sequence[NDArray[np.integer[Any]]],
        counts: Ints,
        tick: Callable[[], None] = lambda: None,
    ) -> None:
        self.sizes = tuple(sizes)
        self._codes = codes
        self._counts = counts
        self._exact = float(counts.sum(dtype=np.float64)) < _EXACT_FLOAT // 2
        self._tick = tick

    def marginal(self, attributes: Sequence[int]) -> Ints:
        """Count by some attributes: one axis for each, ascending as given."""
        shape = tuple(self.sizes[i] for i in attributes)
        cells = math.prod(shape)
        if not shape:
            return np.array(int(self._counts.sum()), dtype=np.int64)
        found: Ints = np.zeros(cells, dtype=np.int64)
        step = max(_PIECE, cells)
        for start in range(0, len(self._counts), step):
            piece = slice(start, start + step)
            counts = self._counts[piece]
            code = np.zeros(len(counts), dtype=np.int64)
            for i in attributes:
                code *= self.sizes[i]
                code += self._codes[i][piece]
            if self._exact:
                some = np.bincount(code, weights=counts.astype(np.float64), minlength=cells)
                found += np.rint(some).astype(np.int64)
            else:
                np.add.at(found, code, counts)
            self._tick()
        return found.reshape(shape)

    def marginals(self, wanted: Sequence[Sequence[int]]) -> Iterator[Ints]:
        """Count several marginals, in the order in which they are asked for."""
        return (self.marginal(attributes) for attributes in wanted)


class Marginals:
    """Marginals that the server counts, where their common refinement does not fit.

    Parameters
    ----------
    query, levels, rows, database, memory_limit, strata
        As of `tabulate`, but the last of the levels are those of strata.
    numeric : bool
        What is counted in, as of `tabulation_sql`.
    """

    def __init__(
        self,
        query: JoinQuery,
        levels: Sequence[Levels],
        rows: int,
        database: Database,
        memory_limit: int,
        *,
        numeric: bool,
        strata: Sequence[int] = (),
    ) -> None:
        self._given = query, tuple(levels), rows, database, memory_limit
        self._numeric, self._strata = numeric, strata

    def marginal(self, attributes: Sequence[int]) -> Ints:
        """See `Tabulation.marginal`.

        Raises
        ------
        NotAnswerable
            When the marginal has more cells than fit the limit: a public fact.
        """
        return next(iter(self.marginals([attributes])))

    def marginals(self, wanted: Sequence[Sequence[int]]) -> Iterator[Ints]:
        """See `Tabulation.marginals`; one statement reads the data for as many as fit.

        Raises
        ------
        NotAnswerable
            As `marginal` does, before anything is read.
        """
        _, levels, _, _, memory_limit = self._given
        sizes = [len(level.values) for level in levels]
        cells = [math.prod(sizes[i] for i in attributes) for attributes in wanted]
        if any(number * _A_CELL > memory_limit for number in cells):
            raise NotAnswerable("a marginal of the workload does not fit the memory limit")
        return self._batches(wanted, sizes, cells)

    def _batches(
        self, wanted: Sequence[Sequence[int]], sizes: Sequence[int], cells: Sequence[int]
    ) -> Iterator[Ints]:
        start = 0
        while start < len(wanted):
            end, room = start + 1, self._given[4] // _A_CELL_OF_MANY - cells[start]
            while end < len(wanted) and end - start < _TOGETHER and cells[end] <= room:
                room -= cells[end]
                end += 1
            found = self._together(list(dict.fromkeys(map(tuple, wanted[start:end]))), sizes)
            for attributes in wanted[start:end]:
                yield found[tuple(attributes)].reshape([sizes[i] for i in attributes])
            start = end

    def _together(
        self, sets: Sequence[tuple[int, ...]], sizes: Sequence[int]
    ) -> dict[tuple[int, ...], Ints]:
        query, levels, rows, database, limit = self._given
        sql = tabulation_sql(
            query,
            levels,
            sets,
            rows,
            limit,
            database,
            numeric=self._numeric,
            grouped=True,
            strata=self._strata,
        )
        packed = fetch(database, sql)
        found: dict[tuple[int, ...], Ints] = {
            kept: np.zeros(math.prod(sizes[i] for i in kept), dtype=np.int64) for kept in sets
        }
        if packed is not None:
            which, code, counts = unpack(packed)
            for n, kept in enumerate(sets):
                mine = which == n
                found[kept][code[mine]] = counts[mine]
                database.tick()
        return found


def tabulate(
    query: JoinQuery,
    levels: Sequence[Levels],
    rows: int,
    database: Database,
    memory_limit: int = MEMORY_LIMIT,
    strata: Sequence[int] = (),
) -> Tabulation | Marginals:
    """Count a block by all its keys.

    Whether all combinations are read at once depends on the data, what is counted does not.

    Parameters
    ----------
    query : JoinQuery
        Counts by the keys; with a privacy unit each unit counts with at most ``rows`` results.
    levels : sequence of Levels
        The attributes; every key is in one of them.  Combinations of other values are left out.
    rows : int
        Bound on the results of a unit.
    database : Database
        Reads, by one statement in one snapshot; if that does not fit, by one for each marginal.
    memory_limit : int
        Bytes that what is read may take.
    strata : sequence of int
        If any, there is one more attribute, the last one: how many of these, which increase, the
        unit's results are more than.
    """
    if strata:
        levels = [*levels, stratum_levels(query, strata)]
    sizes = [len(level.values) for level in levels]
    words = _words(sizes)
    if by_steps(query):  # whether it fits must not decide that it is read again, of another state
        return Marginals(query, levels, rows, database, memory_limit, numeric=True, strata=strata)

    # there are two copies while it is fetched, one while it is decoded
    packed_row = 8 * (len(words) + 1)
    decoded_row = 8 + sum(_kind(size).itemsize for size in sizes)
    packed_limit = memory_limit * packed_row // (packed_row + max(packed_row, decoded_row))

    def read(numeric: bool) -> Tabulation | Marginals:
        sql = tabulation_sql(
            query, levels, words, rows, packed_limit, database, numeric=numeric, strata=strata
        )
        try:
            packed = fetch(database, sql)
        except NotInArrays:
            return Marginals(
                query, levels, rows, database, memory_limit, numeric=numeric, strata=strata
            )
        return _decoded(packed, words, sizes, database)

    return in_either(query, read)


def _kind(size: int) -> np.dtype[np.integer[Any]]:
    """Return the narrowest kind of array that holds the codes of so many levels."""
    return np.min_scalar_type(max(size - 1, 0))


def _decoded(
    packed: bytes | None, words: Sequence[Sequence[int]], sizes: Sequence[int], database: Database
) -> Tabulation:
    columns = [np.zeros(0, dtype=np.int64)] * (len(words) + 1) if packed is None else unpack(packed)
    del packed
    counts = columns.pop()
    codes = [np.empty(len(counts), dtype=_kind(size)) for size in sizes]
    for word in reversed(words):
        column = columns.pop()
        for start in range(0, len(column), _PIECE):
            piece = slice(start, start + _PIECE)
            left = column[piece].astype(np.int64)
            for i in reversed(word):
                left, codes[i][piece] = np.divmod(left, sizes[i])
            database.tick()
    return Tabulation(sizes, codes, counts.astype(np.int64), database.tick)


def _words(sizes: Sequence[int]) -> list[list[int]]:
    """Put attributes together whose codes fit one integer."""
    words: list[list[int]] = []
    room = 0
    for i, size in enumerate(sizes):
        if not words or room * size >= _WORD:
            words.append([])
            room = 1
        words[-1].append(i)
        room *= size
    if len(words) >= MAX_COLUMNS:
        raise NotAnswerable("the domain of the workload has too many attributes")
    return words
