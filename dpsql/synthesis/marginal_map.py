"""From links between types to the answers they would give, and back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpsql.synthesis.records import Answer, Records
from dpsql.synthesis.types import Types
from dpsql.workload.marginals import Floats, cells
from dpsql.workload.residual_bases import Integers

#: Up to so many cells an end is summed by a matrix product, else by sorting.
_FEW = 32


class MarginalMap:
    """The linear map of Algorithm 5's ``Q``, on types.

    Parameters
    ----------
    left, right : Records
    left_types, right_types : Types
        Their attributes hold those of all answers.
    answers : sequence of Answer
        Attributes of the same workload twice are two answers.

    Notes
    -----
    Workloads that share their left end share the pass over the table.
    """

    def __init__(
        self,
        left: Records,
        right: Records,
        left_types: Types,
        right_types: Types,
        answers: Sequence[Answer],
    ) -> None:
        order = sorted(range(len(answers)), key=lambda i: answers[i].workload)
        self.answers = [answers[i] for i in order]
        self._groups: dict[int, list[int]] = {}
        for i, answer in enumerate(self.answers):
            self._groups.setdefault(answer.workload.left, []).append(i)
        self._left = {
            m: _Sum(left_types.codes(left, m), cells(left.sizes, m)) for m in self._groups
        }
        rights = {answer.workload.right for answer in self.answers}
        self._right = {m: _Sum(right_types.codes(right, m), cells(right.sizes, m)) for m in rights}
        self._columns = right_types.number

    def forward(self, table: Floats) -> list[Floats]:
        """Return the marginals of a table, in the order of `answers`."""
        result = []
        for mask, members in self._groups.items():
            rows = self._left[mask].down(table)
            for i in members:
                result.append(self._right[self.answers[i].workload.right].down(rows.T).T)
        return result

    def back(self, forces: Sequence[Floats], out: Floats) -> Floats:
        """Add up the marginals' values at every cell: the transpose of `forward`."""
        out[...] = 0.0
        for mask, members in self._groups.items():
            rows = np.zeros((self._left[mask].cells, self._columns))
            for i in members:
                rows += forces[i][:, self._right[self.answers[i].workload.right].codes]
            out += rows[self._left[mask].codes]
        return out


class _Sum:
    """Adds rows of equal code."""

    def __init__(self, codes: Integers, cells: int) -> None:
        self.codes, self.cells = codes, cells
        self._matrix: Floats | None = None
        if cells <= _FEW:
            self._matrix = np.zeros((cells, codes.size))
            self._matrix[codes, np.arange(codes.size)] = 1.0
        else:
            self._order = np.argsort(codes, kind="stable")
            ordered = codes[self._order]
            self._starts = np.flatnonzero(np.diff(ordered, prepend=-1))
            self._present = ordered[self._starts]

    def down(self, table: Floats) -> Floats:
        """Sum the first axis."""
        if self._matrix is not None:
            return np.asarray(self._matrix @ table)
        result = np.zeros((self.cells, table.shape[1]))
        if self.codes.size:
            result[self._present] = np.add.reduceat(table[self._order], self._starts, axis=0)
        return result
