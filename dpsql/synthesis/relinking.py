"""Parents that agree with what other keys of a row say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpsql.synthesis.hashing import Hashes, hashed
from dpsql.synthesis.values import MISSING, Kind, Numbers, Source
from dpsql.workload.residual_bases import Integers


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


def matching(mine: Sequence[Source], theirs: Sequence[Source], rows: int) -> Matching:
    """Prepare the search among so many parents."""
    every = np.arange(rows)
    hashes = (
        hashed([source.at(every) for source in theirs]) if rows else np.empty(0, dtype=np.uint64)
    )
    translated = tuple(_between(a.kind, b.kind) for a, b in zip(mine, theirs, strict=True))
    return Matching(tuple(mine), translated, hashes, np.argsort(hashes, kind="stable"))


def _between(mine: Kind, theirs: Kind) -> Integers | None:
    """Return for each of my levels the place among theirs; None where numbers mean the same."""
    if mine is theirs or mine == theirs:
        return None
    if mine.form == theirs.form == "listed":
        place = {text: n for n, text in enumerate(theirs.levels)}
        return np.array([place.get(text, MISSING) for text in mine.levels], dtype=np.int64)
    return np.full(1, MISSING, dtype=np.int64)  # nothing agrees


def _translate(numbers: Numbers, places: Integers | None) -> Numbers:
    if places is None:
        return numbers
    inside = np.clip(numbers.astype(np.int64), 0, places.size - 1)
    return np.where(numbers == MISSING, MISSING, places[inside])
