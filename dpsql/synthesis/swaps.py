"""A back end for any number of attributes: real links, moved one by one towards the answers.

Types become as many as rows when many attributes are in use.  Here the state is the links
themselves, and two moves better them: two links trade their right ends, which keeps every degree;
and, where an end's degrees are not given, a link's end goes to another row.  A move is made if it
lowers ``chi^2`` (`type_descent`); moves are tried by the thousand, each judged as if it were alone,
and a batch that made things worse together is taken back and halved.  Memory is proportional to
links and answers, time to links times workloads, and nothing has to be rounded.

Moves that mend two answers at once are taken first, so marginals that nobody measured end further
from independence than those of `type_descent`, which keeps the most entropy.  So types come first:
fit the answers that they can hold, sample, and begin here with those links.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from dpsql.synthesis.blocks import Sampled, sample_links
from dpsql.synthesis.records import Answer, Cross, Links, Records, count_links, cross_shape
from dpsql.synthesis.relationship import End, Relationship
from dpsql.synthesis.types import types_of
from dpsql.workload.marginals import Floats
from dpsql.workload.residual_bases import Integers

_FIRST = 2000
_LEAST = 16
_TRIED = 60_000


class BySwaps:
    """Links of rows, bettered by moves.

    Parameters
    ----------
    left, right : Records
    relationship : Relationship
    rng : Generator
        Draws the first links and proposes moves: post-processing.
    links : Links, optional
        To begin with, within what the relationship allows; are not changed.
    sweeps : int
        Most passes over all links in a fit.
    stop : float
        A fit ends when ``chi^2`` is at most this many times the number of cells.
    still : float
        Or when a pass lowers it by less than this share.
    tick : callable
        Called at every batch; may raise.
    """

    def __init__(
        self,
        left: Records,
        right: Records,
        relationship: Relationship,
        rng: np.random.Generator,
        links: Links | None = None,
        *,
        sweeps: int = 40,
        stop: float = 1.0,
        still: float = 0.01,
        tick: Callable[[], None] = lambda: None,
    ) -> None:
        self.left, self.right, self.relationship = left, right, relationship
        self.rng, self.sweeps, self.stop, self.still, self.tick = rng, sweeps, stop, still, tick
        self.missed = 0
        if links is not None:
            self.links = Links(links.left.copy(), links.right.copy())
            return
        one, other = types_of(left, 0), types_of(right, 0)
        blocks = np.full((one.number, other.number), relationship.total, dtype=np.int64)
        first = sample_links(blocks, one, other, relationship, rng, tick)
        self.missed = first.missed
        self.links = Links(first.links.left.copy(), first.links.right.copy())

    def fits(self, workloads: Iterable[Cross]) -> bool:
        """See `backends.Backend`: always."""
        del workloads
        return True

    def fit(self, answers: Sequence[Answer]) -> float:
        """See `backends.Backend`."""
        return _Moves(self, answers).run()

    def estimates(self, workloads: Sequence[Cross]) -> Mapping[Cross, Floats]:
        """See `backends.Backend`: exact counts of the synthetic links."""
        result: dict[Cross, Floats] = {}
        for w in workloads:
            self.tick()
            found = count_links(self.left, self.right, self.links, w)
            result[w] = found.astype(np.float64)
        return result

    def sample(self, rng: np.random.Generator) -> Sampled:
        """See `backends.Backend`: nothing is left to draw."""
        del rng
        return Sampled(self.links, self.missed)


class _Moves:
    """One fit: residuals of all answers in one vector, and where every row's cells begin."""

    def __init__(self, owner: BySwaps, answers: Sequence[Answer]) -> None:
        self.owner, self.rng, self.links = owner, owner.rng, owner.links
        left, right = owner.left, owner.right
        residuals, weights, start = [np.zeros(0)], [np.zeros(0)], 0
        #: of each answer: first cell plus the left end's part; and the right end's
        self.rows: list[Integers] = []
        self.columns: list[Integers] = []
        self.weight: list[float] = []
        for a in answers:
            shape = cross_shape(left.sizes, right.sizes, a.workload)
            self.rows.append(start + left.codes(a.workload.left) * shape[1])
            self.columns.append(right.codes(a.workload.right))
            self.weight.append(1 / float(a.variance))
            found = count_links(left, right, self.links, a.workload) - a.table
            residuals.append(found.reshape(-1))
            weights.append(np.full(found.size, self.weight[-1]))
            start += found.size
        self.residuals, self.weights = np.concatenate(residuals), np.concatenate(weights)
        self.single = owner.relationship.single
        ends = (owner.relationship.left, owner.relationship.right)
        self.degrees = [
            np.bincount(ids, minlength=end.count) for ids, end in zip(self.links, ends, strict=True)
        ]

    def misfit(self) -> float:
        return float((self.weights * self.residuals**2).sum())

    def run(self) -> float:
        owner = self.owner
        count = self.links.left.size
        batch, now = _FIRST, self.misfit()
        free = [
            k
            for k, end in enumerate((owner.relationship.left, owner.relationship.right))
            if end.degrees is None
        ]
        goal = owner.stop * self.residuals.size
        for _ in range(owner.sweeps if count > 1 else 0):
            if now <= goal:
                break
            before = now
            self._look()
            for _ in range(min(40, 1 + _TRIED // count)):  # few links are tried with more partners
                now, batch = self._pass(now, batch, goal, free)
            if now > (1 - owner.still) * before:
                break
        return now

    def _pass(self, now: float, batch: int, goal: float, free: Sequence[int]) -> tuple[float, int]:
        """Try every link once with each kind of move; return ``chi^2`` and the size of batches."""
        order, at = self.rng.permutation(self.links.left.size), 0
        while at < order.size and now > goal:
            self.owner.tick()
            some = order[at : at + 2 * batch]
            worse = False
            for kind in [None, *free]:
                then = self._try(some, kind, now)
                worse |= then is None
                now = now if then is None else then
            if worse and batch > _LEAST:
                batch = max(batch // 2, _LEAST)  # the same ones again, fewer at once
                continue
            at += 2 * batch
            batch = min(batch + batch // 16 + 1, _FIRST)
        return now, batch

    def _look(self) -> None:
        """Note all pairs at the beginning of a pass; those taken since are in `fresh`."""
        if not self.single:
            width = self.owner.right.count
            self.known = np.sort(self.links.left * width + self.links.right)
            self.fresh: set[int] = set()

    def _try(self, some: Integers, kind: int | None, now: float) -> float | None:
        """Move what helps; return ``chi^2`` then, or None if it was taken back."""
        if kind is None:
            half = some.size // 2
            links = np.stack([some[:half], some[half : 2 * half]])
            old = self.links.left[links], self.links.right[links]
            new = old[0], old[1][::-1]
        else:
            links = some[None, :]
            old = self.links.left[links], self.links.right[links]
            rows = self.rng.integers(0, self.degrees[kind].size, links.shape)
            new = (rows, old[1]) if kind == 0 else (old[0], rows)
        chosen = np.flatnonzero(self._gain(old, new) < -1e-12)
        if kind is not None:
            chosen = chosen[self._has_room(new[kind][0, chosen], old[kind][0, chosen], kind)]
        if not self.single:
            chosen = self._unknown(new, chosen)
        if not chosen.size:
            return now
        links = links[:, chosen].reshape(-1)
        old = old[0][:, chosen].reshape(-1), old[1][:, chosen].reshape(-1)
        new = new[0][:, chosen].reshape(-1), new[1][:, chosen].reshape(-1)
        self._shift(old, new)
        then = self.misfit()
        if then > now:
            self._shift(new, old)
            return None
        self.links.left[links], self.links.right[links] = new
        if kind is not None:
            np.add.at(self.degrees[kind], old[kind], -1)
            np.add.at(self.degrees[kind], new[kind], 1)
        if not self.single:
            self.fresh.update((new[0] * self.owner.right.count + new[1]).tolist())
        return then

    def _gain(self, old: tuple[Integers, Integers], new: tuple[Integers, Integers]) -> Floats:
        """Return by how much each move alone raises ``chi^2``: linear part and square."""
        raised = np.zeros(old[0].shape[1])
        for rows, columns, weight in zip(self.rows, self.columns, self.weight, strict=True):
            before = rows[old[0]] + columns[old[1]]
            after = rows[new[0]] + columns[new[1]]
            slope = (self.residuals[after] - self.residuals[before]).sum(axis=0)
            # both cells of a swap change places where the rows or the columns are alike
            same = (after == before).all(axis=0) | (after == before[::-1]).all(axis=0)
            square = np.where(same, 0.0, 2.0 * len(before))
            raised += weight * np.where(same, 0.0, 2 * slope + square)
        return raised

    def _shift(self, old: tuple[Integers, Integers], new: tuple[Integers, Integers]) -> None:
        for rows, columns in zip(self.rows, self.columns, strict=True):
            np.add.at(self.residuals, rows[old[0]] + columns[old[1]], -1.0)
            np.add.at(self.residuals, rows[new[0]] + columns[new[1]], 1.0)

    def _has_room(self, rows: Integers, before: Integers, kind: int) -> Integers:
        """Return which moves find their row below its bound, one move a row."""
        ends: tuple[End, End] = (self.owner.relationship.left, self.owner.relationship.right)
        limit = ends[kind].limit(ends[1 - kind].count)
        _, first = np.unique(rows, return_index=True)
        first = first[(self.degrees[kind][rows[first]] < limit) & (rows[first] != before[first])]
        return np.asarray(first)

    def _unknown(self, new: tuple[Integers, Integers], chosen: Integers) -> Integers:
        """Return the moves whose pairs are all new, also among each other."""
        keys = new[0][:, chosen] * self.owner.right.count + new[1][:, chosen]
        place = np.minimum(np.searchsorted(self.known, keys), max(self.known.size - 1, 0))
        good = (self.known[place] != keys).all(axis=0)
        taken: set[int] = set()
        kept = []
        for k in np.flatnonzero(good).tolist():
            pair = keys[:, k].tolist()
            if len(set(pair)) == len(pair) and not any(
                key in self.fresh or key in taken for key in pair
            ):
                taken.update(pair)
                kept.append(k)
        return np.asarray(chosen[np.array(kept, dtype=np.int64)])
