"""Mechanisms that measure a Kronecker product: Identity, the workload itself, OPT_kron.

RECONSTRUCT is one pseudo-inverse per attribute (papers/hdmm.txt section 7.2, Proposition 6); the
answers to all products come from one estimate of the data vector, so that they agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction

import numpy as np

from dpsql.errors import InvalidParameter
from dpsql.workload.grem import Residuals
from dpsql.workload.kronecker import Kronecker
from dpsql.workload.marginals import attributes_of, shape
from dpsql.workload.matrix import (
    AllRange,
    Floats,
    Identity,
    Order,
    Permuted,
    Prefix,
    QueryMatrix,
    Total,
)
from dpsql.workload.mechanism import (
    Answers,
    Budget,
    Measurement,
    Mechanism,
    detailed,
    digest,
    exact_product,
    largest_column,
    noise_for,
    noisy,
    over_all,
    row_products,
    variance,
)
from dpsql.workload.opt_kron import Known, opt_kron
from dpsql.workload.optimal_bases import round_columns
from dpsql.workload.residual_bases import Integers, subtraction
from dpsql.workload.spread import Form, Spread
from dpsql.workload.stepwise import Tick, by_rows, invert, matmul
from dpsql.workload.workload import Product, Workload

#: Bits of the entries of a strategy that was found by optimisation.
BITS = 12
#: Bits of all of them together: noise must fit 64 bits with room for counts.
MOST_BITS = 36
#: Matrices of so few rows and bits leave columns too short, since few entries can be moved: the
#: best of many grids is taken.
FEW_ROWS = 16
FEW_BITS = 9
#: Part of a query's largest entry that rounding may leave outside of what is measured.
LOST = 1e-7
#: Cells of the largest data vector that is held (PRIVACY.md says nothing of it: memory only).
MOST_CELLS = 1 << 25
#: Levels of an attribute that is asked for otherwise than level by level.
MOST_LEVELS = 4096


class KroneckerMechanism(Mechanism):
    """Measure a Kronecker product of matrices with noise of one scale.

    Parameters
    ----------
    name : str
        As users ask for it.
    workload, budget : Workload, Budget
        What is answered and what it may cost.
    strategy : Kronecker
        Real matrices, rounded here to integers; the error is that of the rounded ones.
    tick : callable
        Called now and then, later too; may raise to cancel.

    Raises
    ------
    InvalidParameter
        When the strategy does not support the workload, or the cells are too many.
    """

    def __init__(
        self,
        name: str,
        workload: Workload,
        budget: Budget,
        strategy: Kronecker,
        tick: Tick = lambda: None,
    ) -> None:
        self.name, self.workload, self.budget, self.tick = name, workload, budget, tick
        self.mask = sum(1 << i for i, f in enumerate(strategy.factors) if detailed(f))
        require_cells(math.prod(shape(workload.domain.sizes, self.mask)))
        #: What is measured of each attribute; cells where there is none.
        self.matrices: dict[int, Integers] = {}
        self._inverses: list[Floats | None] = []
        spans = [span for product in workload.products for span in product.spans()]
        norm, rows = 1, 1
        bits = _shared_bits([0 if is_whole(f) else f.shape[1] for f in strategy.factors])
        for i, factor in enumerate(strategy.factors):
            asked = [span.factors[i] for span in spans]
            if not self.mask >> i & 1:
                if any(map(detailed, asked)):
                    raise unsupported()
                self._inverses.append(None)
                continue
            if isinstance(factor, Identity):
                self._inverses.append(None)
                rows *= factor.n
                continue
            matrix = integers(factor, budget.order, bits[i], tick)
            inverse, gram, full = inverse_of(matrix, tick)
            if not full and not is_whole(factor):  # rounding lost what hardly counts
                matrix = np.concatenate([matrix, np.eye(matrix.shape[1], dtype=np.int64)])
                inverse, gram, full = inverse_of(matrix, tick)
            if not full:
                require_support(inverse, gram, asked, tick)
            self.matrices[i] = matrix
            self._inverses.append(inverse)
            tick()
            norm *= largest_column(matrix, budget.order)
            rows *= matrix.shape[0]
        parameter, loss = noise_for(budget, Fraction(norm), Fraction(1))
        self.measurements = (Measurement(self.mask, rows, parameter, loss),)
        self._variance = variance(budget.order, parameter)
        self.error = self._variance * math.fsum(
            product.weight**2 * self._expected(product) for product in workload.products
        )

    @property
    def identity(self) -> str:
        """See `Mechanism.identity`."""
        return f"{self.mask} {sorted(self.matrices)} {digest(*self.matrices.values())}"

    def measure(self, k: int, table: Integers, noise: Integers) -> Floats:
        """See `Mechanism.measure`."""
        del k
        places = {i: axis for axis, i in enumerate(attributes_of(self.mask))}
        own = {places[i]: matrix for i, matrix in self.matrices.items()}
        return noisy(exact_product(own, table, self.tick), noise)

    def spread(self) -> Spread:
        """See `Mechanism.spread`."""
        forms = tuple(
            Form("total")
            if not self.mask >> i & 1
            else Form("cells")
            if inverse is None
            else Form("matrix", inverse)
            for i, inverse in enumerate(self._inverses)
        )
        return Spread(forms, {self.mask: self._variance})

    def estimate(self, measured: Sequence[Floats]) -> Floats:
        """RECONSTRUCT: the least squares estimate of the marginal that was measured."""
        (values,) = measured
        for axis, i in enumerate(attributes_of(self.mask)):
            inverse = self._inverses[i]
            if inverse is not None:
                self.tick()
                values = _solve(self.matrices[i], inverse, values, axis, self.tick)
        return values

    @property
    def plain_marginals(self) -> bool:
        """See `Mechanism.plain_marginals`."""
        return not self.matrices

    def residuals(self, measured: Sequence[Floats]) -> Residuals:
        """See `Mechanism.residuals`."""
        found = Residuals(subtraction(self.workload.domain.sizes))
        found.add_marginal(self.mask, measured[0], self._variance)
        return found

    def vector(self, measured: Sequence[Floats]) -> Floats:
        """See `Mechanism.vector`."""
        return spread_evenly(self.estimate(measured), self.mask, self.workload.domain.sizes)

    def answers(self, measured: Sequence[Floats]) -> Iterator[Answers]:
        """See `Mechanism.answers`."""
        estimate = over_all(self.estimate(measured), self.mask, len(self._inverses))
        for product in self.workload.products:
            plus, minus = product.parts()
            values = asked_of(plus, estimate, self.mask)
            if minus is not None:
                values = values - asked_of(minus, estimate, self.mask)
            yield Answers(values, np.sqrt(self._variance * self._variances(product)))

    def _variances(self, product: Product) -> Floats:
        """Return the diagonal of the covariance of answers, for noise of variance 1."""
        plus, minus = product.parts()
        found = self._diagonal(plus, plus)
        if minus is not None:
            found = found - 2 * self._diagonal(plus, minus) + self._diagonal(minus, minus)
        return np.maximum(found, 0.0)

    def _expected(self, product: Product) -> float:
        """Add `_variances` up, of which only the sums along each attribute are formed."""
        plus, minus = product.parts()
        found = self._sum(plus, plus)
        if minus is not None:
            found += self._sum(minus, minus) - 2 * self._sum(plus, minus)
        return found

    def _sum(self, left: Kronecker, right: Kronecker) -> float:
        return math.prod(float(part.sum()) for part in self._parts(left, right))

    def _diagonal(self, left: Kronecker, right: Kronecker) -> Floats:
        parts = self._parts(left, right)
        result = next(parts)
        for part in parts:
            result = np.multiply.outer(result, part)
        return result

    def _parts(self, left: Kronecker, right: Kronecker) -> Iterator[Floats]:
        """Yield the factors of the diagonal; of an attribute that is summed over: of its total."""
        for i, (a, b) in enumerate(zip(left.factors, right.factors, strict=True)):
            if self.mask >> i & 1:
                yield row_products(a, b, self._inverses[i], self.tick)
            else:
                yield np.asarray(a.dense()[:, 0] * b.dense()[:, 0])


def asked_of(queries: Kronecker, estimate: Floats, mask: int) -> Floats:
    """Answer queries from a marginal with one axis for each attribute of the domain."""
    values = estimate
    for i, factor in enumerate(queries.factors):
        if mask >> i & 1:
            values = factor.matvec(values, i)
        else:  # the total is all that is known, and asked
            column = factor.dense()[:, :1]
            values = np.moveaxis(np.tensordot(column, values, axes=(1, i)), 0, i)
    return values


def spread_evenly(marginal: Floats, mask: int, sizes: Sequence[int]) -> Floats:
    """Make a data vector of a marginal."""
    summed = math.prod(n for i, n in enumerate(sizes) if not mask >> i & 1)
    return np.asarray(np.broadcast_to(over_all(marginal, mask, len(sizes)) / summed, sizes))


def _solve(matrix: Integers, inverse: Floats, values: Floats, axis: int, tick: Tick) -> Floats:
    """Apply a pseudo-inverse along an axis; it is formed where that is less work."""
    transposed = matrix.T.astype(np.float64)
    if values.size < matrix.shape[0] ** 2:
        moved = np.tensordot(transposed, values, axes=(1, axis))
        moved = np.tensordot(inverse, moved, axes=1)
    else:
        moved = np.tensordot(matmul(inverse, transposed, tick), values, axes=(1, axis))
    return np.moveaxis(moved, 0, axis)


def inverse_of(matrix: Integers, tick: Tick = lambda: None) -> tuple[Floats, Floats, bool]:
    """Invert the Gram matrix of integers: returns both, and whether it has full rank."""
    exact = matrix.astype(np.float64)
    tick()
    gram = matmul(exact.T, exact, tick)
    inverse = invert(gram, tick)
    tick()
    # the trace of a projection is its rank
    return inverse, gram, float(np.vdot(inverse, gram)) > len(gram) - 0.5


def unsupported() -> InvalidParameter:
    """Say that a query is no linear combination of what is measured."""
    return InvalidParameter(
        "the strategy does not support the workload",
        detail="A query of the workload is no linear combination of the strategy's.",
    )


def require_support(
    inverse: Floats, gram: Floats, asked: Iterable[QueryMatrix], tick: Tick = lambda: None
) -> None:
    """Refuse queries about an attribute that are outside of what is measured of it.

    Each is compared with its own length, whatever it counts for.

    Parameters
    ----------
    inverse, gram : array, shape (n, n)
        The Gram matrix of what is measured, of less than full rank, and its pseudo-inverse.
    asked : iterable of QueryMatrix
        What must be a linear combination of it.
    tick : callable
        Called now and then; may raise to cancel.

    Raises
    ------
    InvalidParameter
        When one is not.
    """
    lost = np.eye(len(gram)) - matmul(inverse, gram, tick)
    for factor in set(asked):
        if isinstance(factor, Identity | Prefix | AllRange):  # of full rank
            raise unsupported()
        queries = factor.dense()
        outside = np.abs(matmul(queries, lost, tick)).max(axis=1)
        if (outside > LOST * np.abs(queries).max(axis=1)).any():
            raise unsupported()


def require_levels(levels: int) -> None:
    """Refuse matrices over pairs of levels that do not fit memory.

    Raises
    ------
    InvalidParameter
        Says what serves attributes of so many levels.
    """
    if levels > MOST_LEVELS:
        raise InvalidParameter(
            "an attribute has too many levels for matrices over pairs of them",
            detail=f"It has {levels} levels; at most {MOST_LEVELS} can be asked for by ranges.",
            hint="Use mechanism => 'identity' or 'auto'.",
        )


def require_cells(cells: int) -> None:
    """Refuse a data vector that does not fit memory.

    Raises
    ------
    InvalidParameter
        Names the mechanisms that need none.
    """
    if cells > MOST_CELLS:
        raise InvalidParameter(
            "the domain is too large for a mechanism that measures all of it",
            detail=f"It would measure {cells} cells; at most {MOST_CELLS} are held in memory.",
            hint="Use mechanism => 'residual_planner', which measures marginals, or 'auto'.",
        )


def is_whole(factor: QueryMatrix) -> bool:
    """Tell whether a factor is a multiple of a matrix with entries 0, 1 and -1."""
    if isinstance(factor, Identity | Total) or factor.bounds() is not None:
        return True
    if isinstance(factor, Permuted):
        return is_whole(factor.matrix)
    dense = factor.dense()
    largest = max(float(np.abs(dense[some]).max()) for some in by_rows(dense))
    return all(
        ((dense[some] == 0) | (np.abs(dense[some]) == largest)).all() for some in by_rows(dense)
    )


def integers(
    factor: QueryMatrix, order: Order, bits: int = BITS, tick: Callable[[], None] = lambda: None
) -> Integers:
    """Write a factor as integers: up to a multiple where that is exact, else rounded on a grid."""
    dense = factor.dense()
    if is_whole(factor):
        return np.asarray(np.sign(dense), dtype=np.int64)
    scale = 1 << bits
    tick()
    dense = dense / factor.sensitivity(order)
    if order == 2:
        if len(dense) > FEW_ROWS or bits > FEW_BITS:
            return round_columns(dense, scale, tick)
        scales = range(scale // 2, scale + 1)
        return min((round_columns(dense, s, tick) for s in scales), key=_unused)
    return np.asarray(np.trunc(dense * scale + np.sign(dense) * 0.5), dtype=np.int64)


def _shared_bits(sizes: Sequence[int]) -> list[int]:
    """Share the bits among factors of these sizes, a few more to the large; 0 needs none."""
    rounded = sum(n > 0 for n in sizes)
    wanted = [math.log2(n) / 4 if n else 0.0 for n in sizes]
    base = (MOST_BITS - sum(wanted)) / max(rounded, 1)
    exact = [base + more if n else 0.0 for n, more in zip(sizes, wanted, strict=True)]
    bits = [int(b) for b in exact]
    for i in sorted(range(len(sizes)), key=lambda i: bits[i] - exact[i])[: MOST_BITS - sum(bits)]:
        bits[i] += bits[i] > 0
    return [min(BITS, b) for b in bits]


def _unused(matrix: Integers) -> float:
    """Return how much shorter than the longest column the others are, squared, together."""
    norms = (matrix**2).sum(axis=0)
    return float((1 - norms / norms.max()).sum())


def identity(workload: Workload, budget: Budget) -> KroneckerMechanism:
    """Measure every cell."""
    cells = Kronecker(tuple(Identity(n) for n in workload.domain.sizes))
    return KroneckerMechanism("identity", workload, budget, cells)


def kronecker(
    workload: Workload,
    budget: Budget,
    *,
    seed: int,
    tick: Callable[[], None] = lambda: None,
    known: Known | None = None,
) -> KroneckerMechanism:
    """Select by OPT_kron."""
    require_optimised(workload)
    found = opt_kron(workload, budget.order, seed=seed, tick=tick, known=known)
    mechanism = KroneckerMechanism("opt_kron", workload, budget, found.queries, tick)
    parameter, _ = noise_for(budget, Fraction(1), Fraction(1))
    mechanism.bound = variance(budget.order, parameter) * found.bound
    return mechanism


def require_optimised(workload: Workload) -> None:
    """Refuse, before anything is optimised, what OPT_kron's result would be too large for.

    Raises
    ------
    InvalidParameter
        See `require_levels` and `require_cells`.
    """
    sizes = workload.domain.sizes
    asked: dict[int, list[QueryMatrix]] = {}
    for product in workload.products:
        for i, factor in enumerate(product.queries.factors):
            asked.setdefault(i, []).append(factor)
    for i, factors in asked.items():
        if any(not isinstance(f, Total) for f in factors):
            require_levels(sizes[i])
    require_cells(math.prod(sizes[i] for i, fs in asked.items() if any(map(detailed, fs))))
