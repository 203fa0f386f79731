"""Parents that agree with what other keys of a row say."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dpsql.synthesis.degrees import follow
from dpsql.synthesis.hashing import Flags, Hashes, any_missing, hashed, ranks
from dpsql.synthesis.values import MISSING, Kind, Numbers, Source
from dpsql.workload.residual_bases import Integers

#: Rows by which it is found which columns tell most.
_LOOKED_AT = 20_000


@dataclass(frozen=True, slots=True)
class Matching:
    """Children and parents that agree have equal hashes of the columns that they share."""

    children: tuple[Source, ...]
    translated: tuple[Integers | None, ...]
    parents: Hashes
    order: Integers

    def mine(self, rows: Integers) -> Hashes:
        """Return the hashes of children."""
        return hashed(
            [
                _translate(source.at(rows), places)
                for source, places in zip(self.children, self.translated, strict=True)
            ]
        )

    def theirs(self, parents: Integers) -> Hashes:
        """Return the hashes of parents."""
        return self.parents[parents]

    def lacks(self, rows: Integers) -> Flags:
        """Tell which children have a NULL among the columns, and therefore need no parent."""
        return any_missing([source.at(rows) for source in self.children])

    def draw(self, rows: Integers, rng: np.random.Generator) -> Integers:
        """Draw for each child a parent that agrees with it, uniformly; -1: there is none."""
        mine = self.mine(rows)
        ordered = self.parents[self.order]
        low = np.searchsorted(ordered, mine, side="left")
        many = np.searchsorted(ordered, mine, side="right") - low
        place = low + rng.integers(0, np.maximum(many, 1))
        if not self.order.size:
            return np.full(rows.size, -1, dtype=np.int64)
        return np.where(many > 0, self.order[np.minimum(place, self.order.size - 1)], -1)


def matching(
    mine: Sequence[Source], theirs: Sequence[Source], rows: int, able: Integers | None = None
) -> Matching:
    """Prepare the search among so many parents, of which the able ones are drawn."""
    every = np.arange(rows)
    kinds = [_common(a.kind, b.kind) for a, b in zip(mine, theirs, strict=True)]
    hashes = (
        hashed(
            [
                _translate(source.at(every), there)
                for source, (_, there) in zip(theirs, kinds, strict=True)
            ]
        )
        if rows
        else np.empty(0, dtype=np.uint64)
    )
    chosen = every if able is None else able
    order = chosen[np.argsort(hashes[chosen], kind="stable")]
    return Matching(tuple(mine), tuple(here for here, _ in kinds), hashes, order)


def regrouped(
    wanted: Integers,
    mine: Hashes,
    theirs: Hashes,
    able: Integers,
    looks: Integers,
    rng: np.random.Generator,
) -> Integers:
    """Give rows parents that agree with them, as like to the wanted ones as there are.

    Parameters
    ----------
    wanted : array of int64, shape (rows,)
        The parents that were drawn; those that agree stay.
    mine, theirs : array of uint64
        What children and parents must agree on.
    able : array of int64
        Parents that may be chosen.
    looks : array of int64, shape (parents, attributes)
        What parents should be alike in, what tells most first.
    rng : Generator

    Returns
    -------
    array of int64
        Parents; -1: none agrees.

    Notes
    -----
    Within each group of parents that agree, children of rows that do not are dealt out so that
    shares of parents stay as they were wanted, and as many as possible get one that is alike in all
    attributes, then in all but the last, and so on.
    """
    good = np.zeros(theirs.size, dtype=bool)
    good[able] = True
    kept = good[wanted] & (theirs[wanted] == mine)
    result = np.where(kept, wanted, -1)
    rows = rng.permutation(np.flatnonzero(~kept))
    slots = _slots(wanted[rows], mine[rows], theirs, able, rng)
    for depth in range(looks.shape[1], -1, -1):
        if not rows.size or not slots.size:
            break
        alike = [looks[:, i] for i in range(depth)]
        one = hashed([mine[rows], *(look[wanted[rows]] for look in alike)])
        other = hashed([theirs[slots], *(look[slots] for look in alike)])
        _, left, right = np.intersect1d(
            hashed([one, ranks(one)]),
            hashed([other, ranks(other)]),
            assume_unique=False,
            return_indices=True,
        )
        result[rows[left]] = slots[right]
        rows, slots = np.delete(rows, left), np.delete(slots, right)
    return result


def _slots(
    wanted: Integers, mine: Hashes, theirs: Hashes, able: Integers, rng: np.random.Generator
) -> Integers:
    """Return parents, each as often as it gets children: as many as a group has of these."""
    if not able.size or not wanted.size:
        return np.zeros(0, dtype=np.int64)
    groups, of = np.unique(theirs[able], return_inverse=True)
    place = np.minimum(np.searchsorted(groups, mine), groups.size - 1)
    children = np.bincount(place[groups[place] == mine], minlength=groups.size)
    asked = np.bincount(wanted, minlength=theirs.size)[able]
    return np.repeat(able, follow(of, children, asked, max(1, wanted.size), rng))


def telling(children: Integers, parents: Integers, most: int = 8) -> Integers:
    """Return the columns of parents that those of their children depend on most, those first.

    Parameters
    ----------
    children, parents : array of int, shape (rows, attributes)
        Codes of children, and for each child those of its parent.
    """
    scores = []
    children, parents = children[:_LOOKED_AT], parents[:_LOOKED_AT]
    for j in range(parents.shape[1]):
        score = 0.0
        for i in range(children.shape[1]):
            one, other = children[:, i], parents[:, j]
            shape = int(one.max(initial=0)) + 1, int(other.max(initial=0)) + 1
            cells = one.astype(np.int64) * shape[1] + other
            table = np.bincount(cells, minlength=shape[0] * shape[1]).reshape(shape)
            shares = table / max(one.size, 1)
            apart = np.abs(shares - shares.sum(1)[:, None] * shares.sum(0)[None, :]).sum()
            score = max(score, apart - np.sqrt(table.size / max(len(one), 1)))
        scores.append(-score)
    return np.argsort(np.array(scores), kind="stable")[:most].astype(np.int64)


def trees(
    linked: Flags, groups: Hashes, wanted: Integers, unique: bool, rng: np.random.Generator
) -> Integers:
    """Link rows to rows of their own group that come before them; -1: there is none.

    Parameters
    ----------
    linked : array of bool
        Which rows are to have a parent.
    groups : array of uint64
    wanted : array of int64
        The parents that were drawn, -1: none; how many children a row has is by chance as there.
    unique : bool
        Whether no row may have two children.
    rng : Generator
    """
    order = np.argsort(groups, kind="stable")
    first = np.searchsorted(groups[order], groups[order])
    here = np.arange(order.size)
    found = np.full(order.size, -1, dtype=np.int64)
    some = (here > first) & linked[order]
    if unique:
        found[order[some]] = order[here[some] - 1]
        return found
    weights = np.bincount(wanted[wanted >= 0], minlength=order.size)[order] + 0.1
    sums = np.concatenate([[0.0], np.cumsum(weights)])
    low, high = sums[first[some]], sums[here[some]]
    place = np.searchsorted(sums, low + rng.random(low.size) * (high - low), side="right") - 1
    found[order[some]] = order[np.clip(place, first[some], here[some] - 1)]
    return found


_WHOLE = re.compile(r"-?\d{1,18}")


def _common(mine: Kind, theirs: Kind) -> tuple[Integers | None, Integers | None]:
    """Return for levels of children and of parents numbers that mean the same on both sides.

    None where numbers do as they are; where nothing can agree every level is NULL.
    """
    if mine is theirs or mine == theirs:
        return None, None
    if mine.form == theirs.form == "listed":
        place = {text: n for n, text in enumerate(theirs.levels)}
        own = [place.get(text, MISSING) for text in mine.levels]
        return np.array(own or [MISSING], dtype=np.int64), None
    one, other = _whole(mine), _whole(theirs)
    if one is False or other is False:
        return np.full(1, MISSING, dtype=np.int64), None
    return one, other


def _whole(kind: Kind) -> Integers | Literal[False] | None:
    """Return the whole numbers that levels are; None where numbers are, False where nothing is."""
    if kind.form == "integer":
        return None
    texts = [text for text in kind.levels if text is not None]
    if kind.form != "listed" or not texts or not all(_WHOLE.fullmatch(text) for text in texts):
        return False
    return np.array([MISSING if t is None else int(t) for t in kind.levels], dtype=np.int64)


def _translate(numbers: Numbers, places: Integers | None) -> Numbers:
    if places is None:
        return numbers
    inside = np.clip(numbers.astype(np.int64), 0, places.size - 1)
    return np.where(numbers == MISSING, MISSING, places[inside])
