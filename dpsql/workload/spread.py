"""The variance of any product query that the answers of a release determine.

All answers of a mechanism are linear in one estimate of the data vector, so that every combination
of them that is one query has the variance of that query, whichever of them it is made of.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsql.workload.matrix import Floats

#: Numbers that are kept of one release, and numbers that one question may look at.
MOST_KEPT = 1 << 18
MOST_WEIGHTS = 1 << 12
MOST_LOOKED_AT = 1 << 24


@dataclass(frozen=True, slots=True)
class Form:
    """The two quadratic forms of one attribute: of its total, and of what its levels differ by.

    Of a query ``q`` over ``n`` levels they are for ``total`` ``q_1^2`` and 0 (all levels are asked
    alike), for ``cells`` 0 and ``q q^T``, for ``subtraction`` ``(q 1 / n)^2`` and
    ``q (I - 11^T / n) q^T``, for ``matrix`` ``(q u)^2`` and ``q C q^T``.
    """

    kind: str
    own: Floats | None = None
    null: Floats | None = None

    def of(self, queries: Floats) -> Floats:
        """Return both for each row: an array of shape (rows, 2)."""
        squares = (queries**2).sum(axis=1)
        if self.kind == "total":
            alike = (queries == queries[:, :1]).all(axis=1)
            null, own = np.where(alike, queries[:, 0] ** 2, np.nan), np.zeros(len(queries))
        elif self.kind == "cells":
            null, own = np.zeros(len(queries)), squares
        elif self.kind == "subtraction":
            sums = queries.sum(axis=1)
            null, own = (sums / queries.shape[1]) ** 2, squares - sums**2 / queries.shape[1]
        else:
            null = np.zeros(len(queries)) if self.null is None else (queries @ self.null) ** 2
            own = _quadratic(queries, self.own)
        return np.stack([null, np.maximum(own, 0.0)], 1)


@dataclass(frozen=True, slots=True)
class Spread:
    """``Var(q) = sum_B v_B prod_i (q_i's own form if i in B, else that of its total)``.

    Attributes
    ----------
    forms : tuple of Form
        One for each attribute.
    weights : dict of int to float
        ``v_B`` by masks of attributes.
    joint : array, optional
        Covariance of all cells of the attributes of the only mask, instead of their own forms.
    """

    forms: tuple[Form, ...]
    weights: dict[int, float]
    joint: Floats | None = None

    def variances(self, queries: Sequence[Floats]) -> Floats | None:
        """Return the variances of products of queries; ``None`` where they are not known.

        Parameters
        ----------
        queries : sequence of array
            For each attribute one row for all products, or one row for each of them.
        """
        rows = max(len(q) for q in queries)
        if sum(q.size for q in queries) + rows * len(self.weights) > MOST_LOOKED_AT:
            return None
        if self.joint is not None:
            found = self._joint(queries, rows)
        else:
            pairs = [form.of(q) for form, q in zip(self.forms, queries, strict=True)]
            found = np.zeros(rows)
            for mask, weight in self.weights.items():
                part = np.full(rows, weight)
                for i, pair in enumerate(pairs):
                    part = part * pair[:, mask >> i & 1]
                found += part
        return found if found is not None and np.isfinite(found).all() else None

    def _joint(self, queries: Sequence[Floats], rows: int) -> Floats | None:
        assert self.joint is not None  # noqa: S101 - the caller has looked
        ((mask, weight),) = self.weights.items()
        if rows * len(self.joint) > MOST_LOOKED_AT:
            return None
        cells = np.ones((rows, 1))
        scale = np.full(rows, weight)
        for i, (form, q) in enumerate(zip(self.forms, queries, strict=True)):
            if not mask >> i & 1:
                scale = scale * form.of(q)[:, 0]
                continue
            wide = np.broadcast_to(q, (rows, q.shape[1]))
            cells = (cells[:, :, None] * wide[:, None, :]).reshape(rows, -1)
        if cells.shape[1] != len(self.joint):
            return None
        return np.asarray(scale * np.maximum(_quadratic(cells, self.joint), 0.0))

    @property
    def numbers(self) -> int:
        """How many numbers there are to be kept."""
        arrays = [a for form in self.forms for a in (form.own, form.null)] + [self.joint]
        return sum(a.size for a in arrays if a is not None)

    def dump(self) -> dict[str, Any] | None:
        """Write it for JSON; ``None`` if it is too large to be kept."""
        if self.numbers > MOST_KEPT or len(self.weights) > MOST_WEIGHTS:
            return None
        return {
            "forms": [[form.kind, _text(form.own), _text(form.null)] for form in self.forms],
            "weights": [[str(mask), weight] for mask, weight in self.weights.items()],
            "joint": _text(self.joint),
        }


def load(raw: dict[str, Any]) -> Spread:
    """Read what `Spread.dump` wrote."""
    forms = tuple(Form(kind, _array(own), _array(null)) for kind, own, null in raw["forms"])
    return Spread(forms, {int(mask): v for mask, v in raw["weights"]}, _array(raw["joint"]))


def _quadratic(queries: Floats, matrix: Floats | None) -> Floats:
    assert matrix is not None  # noqa: S101 - a form of that kind has one
    return np.asarray(((queries @ matrix) * queries).sum(axis=1))


def _text(values: Floats | None) -> list[Any] | None:
    if values is None:
        return None
    kept = np.ascontiguousarray(values, dtype=np.float64)
    return [list(kept.shape), base64.b64encode(zlib.compress(kept.tobytes(), 1)).decode()]


def _array(raw: list[Any] | None) -> Floats | None:
    if raw is None:
        return None
    shape, text = raw
    values = np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype=np.float64)
    return values.reshape(shape)
