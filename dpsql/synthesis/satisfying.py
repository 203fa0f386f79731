"""Links that CHECK constraints refuse: such rows get links of other rows.

Links are drawn without knowledge of constraints over them (a transfer is between two accounts, a
comment is on a post or on a photo).  What a constraint says of a row is asked of the server; here
are proposals, and which of them are taken.  Post-processing of public values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dpsql.synthesis.hashing import Flags
from dpsql.synthesis.values import Kind, Numbers
from dpsql.workload.residual_bases import Integers

#: Rounds: links of one other row together, of one row each, then any parent or none.
_TOGETHER, _APART, _ANY = 20, 20, 60

Values = Mapping[str, tuple[Kind, Numbers]]


@dataclass(frozen=True, slots=True)
class Check:
    """A CHECK constraint and the columns that it is about."""

    name: str
    columns: frozenset[str]


@dataclass(frozen=True, slots=True)
class Checks:
    """The CHECK constraints of one table.

    Attributes
    ----------
    all : sequence of Check
    broken : callable
        Tells of some columns, and some of the constraints by their places, which rows break one.
    """

    all: Sequence[Check]
    broken: Callable[[Values, Sequence[int]], Flags]


@dataclass(frozen=True, slots=True)
class Links:
    """The references whose links may be replaced.

    Attributes
    ----------
    parents : list of array of int64
        Of every reference of the table, changed in place.
    chosen : tuple of int
        The references that a constraint is about, and those that share columns with them.
    alone : frozenset of int
        Those of them that share no column.
    nullable : frozenset of int
    able : mapping
        For each of them the rows that may be parents.
    """

    parents: Sequence[Integers]
    chosen: tuple[int, ...]
    alone: frozenset[int]
    nullable: frozenset[int]
    able: Mapping[int, Integers]

    def propose(
        self, turn: int, rows: Integers, donors: Integers, rng: np.random.Generator
    ) -> None:
        """Give rows other links, in place."""
        together = self.chosen if turn < _TOGETHER else tuple(set(self.chosen) - self.alone)
        taken = rng.choice(donors, rows.size)
        for r in together:
            self.parents[r][rows] = self.parents[r][taken]
        for r in sorted(set(self.chosen) - set(together)):
            links = self.parents[r][rng.choice(donors, rows.size)]
            if turn >= _TOGETHER + _APART:
                links = np.full(rows.size, -1, dtype=np.int64)
                some = rng.random(rows.size) < 0.5 if r in self.nullable else np.ones(rows.size) > 0
                if self.able[r].size:
                    links[some] = rng.choice(self.able[r], int(some.sum()))
            self.parents[r][rows] = links


def satisfy(
    rows: Integers,
    others: Integers,
    links: Links,
    allowed: Callable[[Integers], Flags],
    rng: np.random.Generator,
    tick: Callable[[], None],
) -> Integers:
    """Replace links of rows that a constraint refuses, those of other rows first.

    Parameters
    ----------
    rows : array of int64
        Those that are refused.
    others : array of int64
        Those that are not.
    links : Links
    allowed : callable
        Tells which of some rows may stay as they are now; they do from then on.
    rng : Generator
    tick : callable

    Returns
    -------
    array of int64
        Rows that are still refused; they have their old links.
    """
    before = {r: links.parents[r][rows].copy() for r in links.chosen}
    places = np.arange(rows.size)
    for turn in range(_TOGETHER + _APART + _ANY):
        if not places.size:
            break
        tick()
        now = rows[places]
        links.propose(turn, now, others if others.size else rows, rng)
        places = places[~allowed(now)]
    for r, old in before.items():
        links.parents[r][rows[places]] = old[places]
    return rows[places]
