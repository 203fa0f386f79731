"""Kronecker products of query matrices, multiplied without being materialised."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpsql.errors import InvalidParameter
from dpsql.workload.matrix import Floats, Order, QueryMatrix, refuse_entries


@dataclass(frozen=True)
class Kronecker:
    """A product of conjunctive queries: one matrix per attribute (HDMM, Definition 16).

    Parameters
    ----------
    factors : tuple of QueryMatrix
        One per attribute, in the domain's order; at least one.
    """

    factors: tuple[QueryMatrix, ...]

    def __post_init__(self) -> None:
        if not self.factors:
            raise InvalidParameter("a product of queries needs an attribute")

    @classmethod
    def of(cls, *factors: QueryMatrix) -> Kronecker:
        """Name the factors one by one."""
        return cls(factors)

    @property
    def shape(self) -> tuple[int, int]:
        """Queries and cells, exactly."""
        return math.prod(self.rows), math.prod(self.columns)

    @property
    def rows(self) -> tuple[int, ...]:
        """Queries of each factor."""
        return tuple(factor.shape[0] for factor in self.factors)

    @property
    def columns(self) -> tuple[int, ...]:
        """Levels of each factor."""
        return tuple(factor.shape[1] for factor in self.factors)

    def dense(self) -> Floats:
        """Write the product down (see `QueryMatrix.dense`)."""
        refuse_entries(*self.shape)
        return dense_product([factor.dense() for factor in self.factors])

    def grams(self) -> list[Floats]:
        """List the factors of the Gram matrix, which is their Kronecker product."""
        return [factor.gram() for factor in self.factors]

    def matvec(self, table: Floats) -> Floats:
        """Answer the queries (HDMM, Theorem 14).

        Algorithm 1 there is right only if its first reshaping reads by columns and its second one
        by rows; here every factor is applied along its own axis.

        Parameters
        ----------
        table : array
            The data vector, of shape `columns` or flat in that (C) order.

        Returns
        -------
        array, shape `rows`
            Factors that shrink the table come first, so that no intermediate table is larger than
            the larger of both ends.
        """
        return self._chain(table, self.columns, 1)

    def rmatvec(self, table: Floats) -> Floats:
        """Multiply answers (shape `rows` or flat) by the transpose: shape `columns`."""
        return self._chain(table, self.rows, 0)

    def _chain(self, table: Floats, sizes: tuple[int, ...], side: int) -> Floats:
        if table.size != math.prod(sizes):
            raise InvalidParameter(
                "the table does not fit the product of queries",
                detail=f"It has {table.size} entries, not {math.prod(sizes)}.",
            )
        result = np.asarray(table, dtype=np.float64).reshape(sizes)
        growth = [f.shape[1 - side] / f.shape[side] for f in self.factors]
        for axis in sorted(range(len(sizes)), key=growth.__getitem__):
            factor = self.factors[axis]
            result = factor.matvec(result, axis) if side else factor.rmatvec(result, axis)
        return result

    def sensitivity(self, order: Order) -> float:
        """Multiply the factors' sensitivities (HDMM, Theorem 3)."""
        return math.prod(factor.sensitivity(order) for factor in self.factors)

    def pinv(self) -> Kronecker:
        """Invert every factor (HDMM, Proposition 6)."""
        return Kronecker(tuple(factor.pinv() for factor in self.factors))


def dense_product(matrices: Sequence[Floats]) -> Floats:
    """Write a Kronecker product of arrays down."""
    product: Floats = np.ones((1, 1))
    for matrix in matrices:
        product = np.asarray(np.kron(product, matrix), dtype=np.float64)
    return product
