"""Branch and bound over integer boxes, for two variables and more (docs/proofs/smooth.md).

Maximises ``L(s) = log P(s) - beta * sum(s)``.  A node is a box ``low <= s <= high`` with
the coefficients of ``P(low + x)``, which are not negative either.  On it ``P`` is at most
linear in ``x`` (every monomial is at most the mean of its chords), and the maximum of
``exp(-beta * sum)`` times a linear function over the integer points of a box is known
exactly: fill the coordinates in the order of their slopes.  A second test drops boxes in
which moving one unit from ``s_j`` to ``s_i`` always helps.  Nodes are bounded together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from dpsql.core.polynomial import Polynomial, Powers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Whole = NDArray[np.intp]
    Flags = NDArray[np.bool_]

_TINY = 1e-290
_ULP = 2.0**-50  # more than two roundings: what one cut adds to a coefficient's error
_CHUNK = 2**16  # coefficients that are handled between two ticks
_FEW = 200  # so few nodes are cut twice at once: the loop costs more than they do


@dataclass(frozen=True, slots=True)
class Job:
    """One polynomial to maximise, from ``start`` on; its ``L`` is raised by ``bonus``.

    The polynomial has no capped factors and every variable occurs.
    """

    polynomial: Polynomial
    start: tuple[int, ...]
    bonus: float

    def degrees(self) -> tuple[int, ...]:
        """Give the highest power of every variable; jobs of one call agree."""
        return tuple(max(p[i] for p in self.polynomial) for i in range(len(self.start)))


@dataclass(frozen=True, slots=True)
class _Nodes:
    low: Floats  # (nodes, variables), integers stored as floats
    high: Floats
    terms: Floats  # (nodes, monomials), coefficients of P(low + x)
    job: Whole  # (nodes,), which polynomial

    def __len__(self) -> int:
        return len(self.job)

    def take(self, which: Flags | slice) -> _Nodes:
        return _Nodes(self.low[which], self.high[which], self.terms[which], self.job[which])

    def join(self, other: _Nodes) -> _Nodes:
        return _Nodes(
            np.vstack([self.low, other.low]),
            np.vstack([self.high, other.high]),
            np.vstack([self.terms, other.terms]),
            np.concatenate([self.job, other.job]),
        )


class _Monomials:
    """All monomials up to given degrees, the last variable changing fastest."""

    def __init__(self, degrees: tuple[int, ...]) -> None:
        self.degrees = degrees
        self.n = len(degrees)
        self.powers = list(product(*(range(d + 1) for d in degrees)))
        self.place = {p: at for at, p in enumerate(self.powers)}
        self.mean = np.zeros((len(self.powers), self.n))  # chords: x**p <= mean of the x_i
        self.bent = np.zeros((len(self.powers), self.n))  # what a cut can improve
        for at, p in enumerate(self.powers):
            support = [i for i, a in enumerate(p) if a]
            for i in support:
                self.mean[at, i] = 1 / len(support)
                self.bent[at, i] = float(sum(p) > 1)
        self.occurs = (self.mean > 0).astype(np.float64)
        self.exchanges = self._exchanges()

    def _exchanges(self) -> tuple[Whole, Whole, Whole, Whole, Whole, Whole]:
        """Ordered pairs (i, j) of variables that occur linearly, and coefficients for them.

        Per pair and monomial ``p`` in the other variables: the places of ``p``,
        ``p s_i``, ``p s_j`` and ``p s_i s_j``; ``p = 1`` comes first.
        """
        linear = [i for i, d in enumerate(self.degrees) if d == 1]
        pairs = [(i, j) for i in linear for j in linear if i != j]
        places: list[list[list[int]]] = [[], [], [], []]
        for i, j in pairs:
            rest = [p for p in self.powers if p[i] == p[j] == 0]
            for kind, (a, b) in enumerate([(0, 0), (1, 0), (0, 1), (1, 1)]):
                places[kind].append([self.place[_with(p, {i: a, j: b})] for p in rest])
        tables = [np.array(table, dtype=np.intp) for table in places]
        ends = np.array(pairs, dtype=np.intp).reshape(-1, 2)
        return ends[:, 0], ends[:, 1], tables[0], tables[1], tables[2], tables[3]

    def along(self, terms: Floats, i: int) -> Floats:
        """View coefficients as (nodes, before, power of s_i, after)."""
        after = math.prod(d + 1 for d in self.degrees[i + 1 :])
        return terms.reshape(len(terms), -1, self.degrees[i] + 1, after)

    def values(self, points: Floats) -> Floats:
        """Evaluate every monomial at points."""
        result = np.ones((len(points), 1))
        for i in reversed(range(self.n)):
            blocks = [result]
            for _ in range(self.degrees[i]):
                blocks.append(blocks[-1] * points[:, i, None])
            result = np.concatenate(blocks, axis=1)
        return result

    def shift(self, terms: Floats, i: int, step: Floats) -> Floats:
        """Replace ``x_i`` by ``x_i + step``; no cancellation unless ``step`` is negative."""
        result = terms.copy()
        view = self.along(result, i)
        for first in range(self.degrees[i]):
            for a in range(self.degrees[i] - 1, first - 1, -1):
                view[:, :, a] += view[:, :, a + 1] * step[:, None, None]
        return result


@lru_cache(maxsize=16)
def _monomials(degrees: tuple[int, ...]) -> _Monomials:
    return _Monomials(degrees)


def _with(powers: Powers, changes: dict[int, int]) -> Powers:
    return tuple(changes.get(i, a) for i, a in enumerate(powers))


class _Search:
    """The best point so far and the bounds of nodes."""

    def __init__(self, jobs: Sequence[Job], beta: float, tolerance: float, floor: float) -> None:
        self.beta, self.tolerance = beta, tolerance
        self.of = of = _monomials(jobs[0].degrees())
        logs = [{p: math.log(c) + job.bonus for p, c in job.polynomial.items()} for job in jobs]
        top = max(log for table in logs for log in table.values())
        terms = np.zeros((len(jobs), len(of.powers)))
        for number, table in enumerate(logs):
            for p, log in table.items():
                terms[number, of.place[p]] = max(math.exp(log - top), _TINY)
        low = np.array([job.start for job in jobs], dtype=np.float64)
        self.high = np.maximum(low, np.ceil(np.array(of.degrees) / beta) + 1)
        self.low, self.terms = low, terms
        cuts = np.log2(self.high - low + 2).max(axis=0) + 2
        self.margin = _ULP * float((cuts * np.array(of.degrees)).sum())
        self.floor = floor - top
        self.best, self.winner, self.point = -math.inf, 0, low[0]

    def root(self) -> _Nodes:
        shifted = self.terms
        for i in range(self.of.n):
            shifted = self.of.shift(shifted, i, self.low[:, i])
        return _Nodes(self.low, self.high, shifted, np.arange(len(self.terms)))

    def offer(self, values: Floats, points: Floats, job: Whole) -> None:
        at = int(np.argmax(values))
        if values[at] > self.best:
            self.best, self.winner, self.point = float(values[at]), int(job[at]), points[at]

    def climb(self) -> None:
        """Coordinate ascent from a grid of starting points: a first incumbent, no proof."""
        n, of = self.of.n, self.of
        grid = np.array(list(product((0.0, 0.45, 0.9), repeat=min(n, 4))))
        grid = np.hstack([grid, np.full((len(grid), n - grid.shape[1]), 0.45)])
        job = np.repeat(np.arange(len(self.terms)), len(grid))
        low, high, terms = self.low[job], self.high[job], self.terms[job]
        points = np.rint(low + np.tile(grid, (len(self.terms), 1)) * (high - low))
        for _ in range(3):
            for i in range(n):
                here = of.along(of.values(points) * terms, i).sum((1, 3))
                share = (here * np.arange(of.degrees[i] + 1)).sum(1) / here.sum(1)
                best = share / self.beta  # where share of s_i's power, and beta s_i, agree
                if of.degrees[i] == 1:
                    best = 1 / self.beta - here[:, 0] / (here[:, 1] / points[:, i])
                best = np.where(np.isnan(best), points[:, i], np.rint(best))
                points[:, i] = np.clip(best, low[:, i], high[:, i])
        values = np.log((of.values(points) * terms).sum(1)) - self.beta * points.sum(1)
        self.offer(values, points, job)

    def bound(self, nodes: _Nodes) -> tuple[Floats, Floats]:
        """Bound ``L`` on every node, offering the points where the linear bounds are largest.

        Also tells for every side how much a cut across it might gain.
        """
        of, width = self.of, nodes.high - nodes.low
        scaled = nodes.terms * of.values(width)
        rise = scaled @ of.mean
        slope = np.where(width > 0, rise / width, 0.0)
        rows = np.arange(len(nodes))
        order = np.argsort(-slope, axis=1)
        sort = (rows[:, None], order)
        slope, step, rise = slope[sort], width[sort], rise[sort]
        before = np.cumsum(step, axis=1) - step
        value = scaled[:, :1] + np.cumsum(rise, axis=1) - rise
        # on each piece log(value + slope * f) - beta * f is concave in f
        real = 1 / self.beta - value / slope
        down = np.floor(np.clip(np.where(np.isnan(real), 0.0, real), 0.0, step))
        up = np.minimum(down + 1, step)
        at_down = np.log(value + slope * down) - self.beta * (before + down)
        at_up = np.log(value + slope * up) - self.beta * (before + up)
        piece = np.argmax(np.maximum(at_down, at_up), axis=1)
        pick = (rows, piece)
        upper = np.maximum(at_down[pick], at_up[pick]) - self.beta * nodes.low.sum(1)
        total = before[pick] + np.where(at_down[pick] >= at_up[pick], down[pick], up[pick])
        filled = np.empty_like(width)
        filled[sort] = np.clip(total[:, None] - before, 0.0, step)
        points = nodes.low + filled
        found = (of.values(filled) * nodes.terms).sum(1)
        self.offer(np.log(found) - self.beta * points.sum(1), points, nodes.job)
        return upper, np.where(width > 0, scaled @ of.bent, -1.0)

    def exchange(self, nodes: _Nodes) -> tuple[Floats, Flags]:
        """Sharpen ``high`` and tell which nodes may hold a maximiser.

        Where moving one unit from ``s_j`` to ``s_i`` adds to P on a whole box, a
        maximiser has ``s_j = start_j``: nothing to take from there.
        """
        of, width = self.of, nodes.high - nodes.low
        values, above = of.values(width), of.values(width + 1) * nodes.terms
        empty = np.zeros(width.shape, dtype=np.bool_)
        self._exchange_linear(nodes, values, above, empty)
        if max(of.degrees) > 1:
            self._exchange_bent(nodes, values, above, empty)
        taken = empty & (nodes.low > self.low[nodes.job])
        return np.where(empty, nodes.low, nodes.high), np.asarray(~taken.any(1))

    def _exchange_linear(self, nodes: _Nodes, values: Floats, above: Floats, empty: Flags) -> None:
        """With ``P = a + b s_i + c s_j + d s_i s_j`` the gain is ``b - c + d (s_j - s_i - 1)``."""
        of, width, terms = self.of, nodes.high - nodes.low, nodes.terms
        to, source, rest, b, c, d = of.exchanges
        if not len(to):
            return
        gain = terms.take(d, axis=1)
        gain *= -(width[:, to] + 1)[:, :, None]
        gain += terms.take(b, axis=1)
        gain -= terms.take(c, axis=1)
        gain *= values.take(rest, axis=1)
        least = gain[:, :, 0] + np.minimum(gain[:, :, 1:], 0.0).sum(2)
        slopes = above @ of.occurs / (width + 1)
        sure = least > self.margin * (slopes[:, to] + slopes[:, source])
        for j in range(of.n):
            empty[:, j] |= sure[:, source == j].any(1)

    def _exchange_bent(self, nodes: _Nodes, values: Floats, above: Floats, empty: Flags) -> None:
        """Compare all coefficients of ``P(s + e_i - e_j)`` and ``P(s)``."""
        of, one, noise = self.of, np.ones(len(nodes)), self.margin * above.sum(1)
        for i in range(of.n):
            others = [j for j in range(of.n) if j != i and max(of.degrees[i], of.degrees[j]) > 1]
            more = of.shift(nodes.terms, i, one) if others else nodes.terms
            for j in others:
                gain = (of.shift(more, j, -one) - nodes.terms) * values
                least = gain[:, 0] + np.minimum(gain[:, 1:], 0.0).sum(1)
                empty[:, j] |= least > noise

    def split(self, nodes: _Nodes, side: Whole) -> _Nodes:
        """Halve every node across its side; first the lower halves, then the upper ones."""
        rows = np.arange(len(nodes))
        cut = np.floor(0.5 * (nodes.low[rows, side] + nodes.high[rows, side]))
        step = cut + 1 - nodes.low[rows, side]
        low, high, terms = nodes.low.copy(), nodes.high.copy(), nodes.terms.copy()
        high[rows, side] = cut
        low[rows, side] = cut + 1
        for i in range(self.of.n):
            mine = np.flatnonzero(side == i)
            if len(mine):
                terms[mine] = self.of.shift(nodes.terms[mine], i, step[mine])
        upper = _Nodes(low, nodes.high, terms, nodes.job)
        proper = nodes.low[rows, side] < nodes.high[rows, side]
        return _Nodes(nodes.low, high, nodes.terms, nodes.job).join(upper.take(proper))

    def children(self, nodes: _Nodes) -> _Nodes | None:
        """Bound nodes, drop those without a better point, cut the others."""
        upper, gains = self.bound(nodes)
        wanted = max(self.best, self.floor) + self.tolerance
        open_ = np.asarray((upper > wanted) & (nodes.low < nodes.high).any(1))
        if not open_.any():
            return None
        nodes, gains = nodes.take(open_), gains[open_]
        high, possible = self.exchange(nodes)
        nodes = _Nodes(nodes.low, high, nodes.terms, nodes.job).take(possible)
        if not len(nodes):
            return None
        gains = np.where(nodes.low < nodes.high, gains[possible], -1.0)
        for _ in range(2 if len(nodes) < _FEW else 1):
            side = np.argmax(gains, axis=1)
            proper = (nodes.low < nodes.high)[np.arange(len(nodes)), side]
            gains[np.arange(len(nodes)), side] *= 0.25
            nodes = self.split(nodes, side)
            gains = np.vstack([gains, gains[proper]])
            gains[nodes.low >= nodes.high] = -1.0
        return nodes


def maximise(
    jobs: Sequence[Job],
    beta: float,
    tolerance: float,
    floor: float = -math.inf,
    tick: Callable[[], None] = lambda: None,
) -> tuple[int, tuple[int, ...]]:
    """Find a job and a point that are optimal, up to ``tolerance`` in ``L``.

    Parameters
    ----------
    jobs : sequence of Job
        With equal degrees.
    beta : float, > 0
        Smoothness.
    tolerance : float
        Allowed gap in ``log P(s) - beta * sum(s) + bonus``.
    floor : float
        A value that is known to be attained elsewhere.
    tick : callable
        Called every few milliseconds; may raise to cancel.

    Returns
    -------
    tuple of int and tuple of int
        Index of the job, and the point; any if none exceeds ``floor + tolerance``.
    """
    with np.errstate(all="ignore"):
        search = _Search(jobs, beta, tolerance, floor)
        search.climb()
        pending = [search.root()]
        size = max(1, _CHUNK // len(search.of.powers))
        while pending:
            tick()
            nodes = pending.pop()
            if len(nodes) > size:
                pending.append(nodes.take(slice(size, None)))
                nodes = nodes.take(slice(size))
            grown = search.children(nodes)
            if grown is not None:
                pending.append(grown)
    return search.winner, tuple(int(s) for s in search.point)
