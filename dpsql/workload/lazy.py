"""Lazy updating: keep reconstructed marginals up to date while residuals change.

A changed residual moves only the marginals that contain its attributes, each by the Recon of
the change (papers/aim-grem.txt, Proposition 4.2).  All changes that meet in a marginal, of however
many rounds, are applied when it is next read; only what is left after summing is smeared over it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from dpsql.workload.axis import part, recon, reconstruct
from dpsql.workload.grem import Residuals
from dpsql.workload.marginals import Floats, attributes_of, cells, gather_up, maximal
from dpsql.workload.residual_bases import Subtraction


class LazyMarginals:
    """Marginals of a set of residuals, computed when first asked for and updated afterwards.

    Parameters
    ----------
    residuals : Residuals
        The estimates; whoever changes them calls `changed`.
    """

    def __init__(self, residuals: Residuals) -> None:
        self.residuals = residuals
        self._tables: dict[int, Floats] = {}
        self._pending: dict[int, dict[int, Floats]] = {}
        self._norms: dict[int, float] = {}

    def __getitem__(self, mask: int) -> Floats:
        """Return a marginal; not to be written to, and overwritten by later changes."""
        pending = self._pending.pop(mask, None)
        if mask not in self._tables:
            ((_, table),) = self.residuals.marginals([mask])
            self._tables[mask] = table
        elif pending:
            self._move(mask, pending)
        return self._tables[mask]

    def changed(self, changes: Mapping[int, Floats]) -> Iterable[int]:
        """Take note of changes of residuals: mask to difference, as `Residuals.add` returns.

        Returns their masks: other tables than those above them stay as they are.
        """
        for below in changes:
            self._norms.pop(below, None)
        for mask in self._tables:
            for below, change in changes.items():
                if below & ~mask == 0:
                    notes = self._pending.setdefault(mask, {})
                    known = notes.get(below)
                    notes[below] = change if known is None else known + change
        return changes

    def allowed(self, masks: Sequence[int], share: float) -> list[int]:  # noqa: ARG002
        """Return all: any marginal can be reconstructed, whatever is measured."""
        return list(masks)

    def bounds(self, masks: Sequence[int]) -> dict[int, tuple[float, float]]:
        """Bound the sum of absolute values of marginals, without reconstructing them.

        With subtraction the components of a marginal are orthogonal, so that its Euclidean
        norm follows from its residuals': ``sum_B |K z_B|^2 / prod_{i in A-B} n_i``.
        """
        bases = self.residuals.bases
        for below, residual in self.residuals.values.items():
            if below not in self._norms:
                centred = recon(residual, below, below, bases)
                self._norms[below] = float(np.vdot(centred, centred))
        sizes = [basis.size for basis in bases]
        squares = gather_up(
            {mask: self._norms.get(mask, 0.0) for mask in masks} | self._norms,
            [1.0] * len(sizes),
            [1.0 / n for n in sizes],
        )
        return {
            mask: (root, root * math.sqrt(cells(sizes, mask)))
            for mask in masks
            if (root := math.sqrt(squares[mask])) >= 0
        }

    def drop(self, masks: Iterable[int]) -> None:
        """Forget tables, to free memory; they are reconstructed when asked for again."""
        for mask in masks:
            self._tables.pop(mask, None)
            self._pending.pop(mask, None)

    def held(self) -> int:
        """Return the number of cells in memory."""
        return sum(table.size for table in self._tables.values())

    def _move(self, mask: int, changes: Mapping[int, Floats]) -> None:
        """Add the components of changes: summed up while they are small, smeared last."""
        bases, table = self.residuals.bases, self._tables[mask]
        left = dict(changes)
        for top in maximal(changes):
            packed = np.zeros([bases[i].size for i in attributes_of(top)])
            for below in [m for m in left if m & ~top == 0]:
                part(packed, top, below)[...] = left.pop(below)
            moved = reconstruct(packed, [bases[i] for i in attributes_of(top)])
            for axis, i in enumerate(attributes_of(mask)):
                if not top >> i & 1:
                    moved = np.expand_dims(moved, axis)
                    basis = bases[i]
                    if isinstance(basis, Subtraction):  # the same for all levels: broadcast
                        moved = moved / basis.size
                    else:
                        moved = basis.smear(moved, axis)
            table += moved
