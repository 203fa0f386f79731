"""Solve the program of `dpsql.core.deletion` by passes over its sets (`dpsql.core.streamed`)."""

from __future__ import annotations

import numpy as np

from dpsql.core.excess import DEAREST, Excess, Lower
from dpsql.core.programs import Bounds
from dpsql.core.streamed import gathered, spread, weighed


class Deleting:
    """Solve ``f``: the primal variables are the deleted shares of units and of sets.

    ``deleted`` and ``gone`` are these shares.  A set's share is at most the sum of its units'
    shares; ``ties`` are the dual variables of these constraints, divided by ``grades``, their
    largest values.  ``prices`` are the dual variables of what each unit must lose, as a share of
    its load.
    """

    def __init__(self, excess: Excess, best: Bounds) -> None:
        self.excess, self.best, self.lower = excess, best, Lower.of(excess, 0, 0)
        size, units, space = len(excess.weights), excess.units, excess.space
        self.gone, self.ties, self.gone_anchor, self.tie_anchor, self.grades = (
            space.empty(size, np.float64) for _ in range(5)
        )
        self.each = np.zeros(units + 1)
        self.each[excess.heavy] = 1 / excess.loads
        self.totals, self.tied = np.zeros(units), np.zeros(units)
        for part in excess.blocks():
            for kept in (self.gone, self.ties, self.gone_anchor, self.tie_anchor):
                kept[part] = 0.0
            members = excess.members[part]
            self.grades[part] = excess.weights[part] * gathered(members, self.each)
            self.totals += spread(members, self.grades[part], units)
        self.deleted, self.deleted_anchor = np.zeros(units), np.zeros(units)
        self.prices, self.price_anchor = np.zeros(units), np.zeros(units)
        self.wanted = np.zeros(units)
        self.wanted[excess.heavy] = excess.needs / excess.loads
        self.weight = 1.0

    def step(self, inertia: float) -> None:
        """Take one step, in one pass over the sets."""
        excess, keep = self.excess, 1 - inertia
        move = (self.tied - 1) / (np.maximum(self.totals, 1e-300) * self.weight)
        deleted = np.where(self.totals > 0, np.clip(self.deleted + move, 0, 1), 0)
        ahead = 2 * deleted - self.deleted
        padded, priced = np.append(ahead, 0.0), np.append(self.prices, 0.0) * self.each
        lost, tied = np.zeros(excess.units), np.zeros(excess.units)
        for part in excess.blocks():
            members, weights, grades = excess.members[part], excess.weights[part], self.grades[part]
            width = (members < excess.units).sum(axis=1)
            # the weight of a set cancels out; dividing by it would fail where it is 0
            pull = gathered(members, priced) / gathered(members, self.each) - self.ties[part]
            gone = 2 * np.clip(self.gone[part] + pull / (2 * self.weight), 0, 1) - self.gone[part]
            lost += spread(members, weights * gone, excess.units)
            over = gone - gathered(members, padded)
            ties = np.maximum(self.ties[part] + self.weight * over / (1 + width), 0)
            ties = 2 * ties - self.ties[part]
            self.gone[part] = inertia * gone + keep * self.gone_anchor[part]
            self.ties[part] = ties = inertia * ties + keep * self.tie_anchor[part]
            tied += spread(members, grades * ties, excess.units)
        short = self.wanted - lost * self.each[:-1]
        prices = 2 * np.maximum(self.prices + self.weight * short, 0) - self.prices
        self.deleted = inertia * ahead + keep * self.deleted_anchor
        self.prices = inertia * prices + keep * self.price_anchor
        self.tied = tied

    def look(self) -> float:
        """Compute bounds of ``f``; return their gap."""
        excess, margin = self.excess, self.excess.margin
        prices = np.clip(np.nan_to_num(self.prices), 0, DEAREST)
        priced = np.append(prices, 0.0) * self.each
        given, loads = 0.0, np.zeros(excess.units)
        for part in excess.blocks():
            members = excess.members[part]
            worth = excess.weights[part] * gathered(members, priced)
            ties = np.clip(np.nan_to_num(self.ties[part]) * self.grades[part], 0, worth)
            given += float((worth * (1 + margin) - ties).sum())
            loads += spread(members, ties, excess.units)
        paid = float((priced[excess.heavy] * excess.needs).sum())
        given += float(np.maximum(loads * (1 + margin) - 1, 0).sum())
        value = paid * (1 - margin) - given * (1 + margin)
        self.lower = Lower.of(excess, value, float(priced.sum()) * (1 - margin))
        upper = excess.nearby(self.deleted)
        self.best = Bounds(min(self.best.upper, upper), max(self.best.lower, self.lower.value))
        return float(upper - self.lower.value)

    def restart(self) -> None:
        """Move the anchor to the current point."""
        excess, primal, dual = self.excess, 0.0, 0.0
        for part in excess.blocks():
            grades = self.grades[part]
            width = (excess.members[part] < excess.units).sum(axis=1)
            primal += float((2 * grades * (self.gone[part] - self.gone_anchor[part]) ** 2).sum())
            far = self.ties[part] - self.tie_anchor[part]
            dual += float(((1 + width) * grades * far**2).sum())
            self.gone_anchor[part], self.tie_anchor[part] = self.gone[part], self.ties[part]
        primal += float((self.totals * (self.deleted - self.deleted_anchor) ** 2).sum())
        dual += float(((self.prices - self.price_anchor) ** 2).sum())
        self.weight = weighed(self.weight, primal, dual)
        self.deleted_anchor, self.price_anchor = self.deleted, self.prices
