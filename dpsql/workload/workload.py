"""Weighted unions of Kronecker products, and what a strategy's answers to them are worth.

Errors are in *units*: those of a strategy of sensitivity 1 whose noise has variance 1.  The noise
multiplies the squared error by its variance: ``2/epsilon^2`` for Laplace noise, whose sensitivity
is an L1 norm, ``sigma^2`` for Gaussian noise and the L2 norm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dpsql.errors import InvalidParameter
from dpsql.workload.domain import Domain
from dpsql.workload.kronecker import Kronecker, dense_product
from dpsql.workload.matrix import Dense, Floats, Order, QueryMatrix, gram_pinv, refuse_entries
from dpsql.workload.stepwise import Tick, matmul

#: A query counts as unsupported when more than this part of its square lies outside the strategy.
SUPPORT_TOLERANCE = 1e-6
#: How much larger the largest weight of a workload may be than the smallest: squares of weights are
#: what strategies are optimised for.
MOST_RATIO = 1e6
#: Weights between one over this and this: no square or sum of squares leaves floating point.
MOST_WEIGHT = 1e100


@dataclass(frozen=True)
class Product:
    """One product of conjunctions, some of which may be disjunctions, times a weight.

    Parameters
    ----------
    queries : Kronecker
        One matrix per attribute.
    weight : float
        Multiplies every query; its magnitude is at most `MOST_WEIGHT` and at least one over that.
    either : tuple of int
        Places of attributes of whose predicates *one* at least is to hold (HDMM, appendix A); those
        of all other attributes hold too.  Entries of these attributes' matrices must be 0 or 1.

    Raises
    ------
    InvalidParameter
        When the weight or a place is out of range, or an entry is neither 0 nor 1.
    """

    queries: Kronecker
    weight: float = 1.0
    either: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not math.isfinite(self.weight) or self.weight == 0:
            raise InvalidParameter("the weight of a product of queries must be finite and not 0")
        if not 1 / MOST_WEIGHT <= abs(self.weight) <= MOST_WEIGHT:
            raise InvalidParameter(
                "the weight of a product of queries is out of range",
                detail=f"It is {self.weight:g}; weights are from {1 / MOST_WEIGHT:g} to "
                f"{MOST_WEIGHT:g}.",
            )
        if len(set(self.either)) != len(self.either) or not set(self.either) <= set(
            range(len(self.queries.factors))
        ):
            raise InvalidParameter("the attributes of a disjunction must be places of a product")
        for i in self.either:
            if not np.isin(self.queries.factors[i].dense(), (0.0, 1.0)).all():
                raise InvalidParameter(
                    "a disjunction needs predicates, whose matrices have entries 0 or 1"
                )

    @property
    def nothing(self) -> bool:
        """Whether every query is 0 on the whole domain, as of a condition that never holds."""
        zero = [
            isinstance(factor, Dense) and not factor.dense().any()
            for factor in self.queries.factors
        ]
        if any(z for i, z in enumerate(zero) if i not in self.either):
            return True
        return bool(self.either) and all(zero[i] for i in self.either)

    def spans(self) -> tuple[Kronecker, ...]:
        """List products without disjunctions whose queries together span these.

        Empty where no query asks for anything.
        """
        if self.nothing:
            return ()
        plus, minus = self.parts()
        if minus is None:
            return (plus,)
        live = [i for i in self.either if self.queries.factors[i].dense().any()]
        if len(live) == 1:  # no other predicate ever holds
            factors = list(plus.factors)
            factors[live[0]] = self.queries.factors[live[0]]
            return (Kronecker(tuple(factors)),)
        if all(minus.factors[i].dense().any() for i in self.either):
            return plus, minus
        return (plus,)  # one predicate always holds

    def parts(self) -> tuple[Kronecker, Kronecker | None]:
        """Write the queries (without weight) as a product minus, for disjunctions, another one.

        The first leaves the disjunction out, the second asks for the rows on which it does not
        hold, because none of its predicates does (HDMM, Theorems 15 and 16).
        """
        if not self.either:
            return self.queries, None
        free, none = list(self.queries.factors), list(self.queries.factors)
        for i in self.either:
            dense = self.queries.factors[i].dense()
            free[i], none[i] = Dense(np.ones_like(dense)), Dense(1 - dense)
        return Kronecker(tuple(free)), Kronecker(tuple(none))


@dataclass(frozen=True)
class GramTerm:
    """``coefficient`` times a Kronecker product, a part of a Gram matrix.

    The product need not be symmetric: of disjunctions the sum of all terms is.
    """

    coefficient: float
    factors: tuple[Floats, ...]


@dataclass(frozen=True)
class Workload:
    """What ImpVec returns (HDMM, section 5.3 and Equation 3), with disjunctions (appendix A).

    Parameters
    ----------
    domain : Domain
        The attributes.
    products : tuple of Product
        At least one, each with one matrix per attribute that has as many columns as levels.

    Raises
    ------
    InvalidParameter
        When a product does not fit the domain, or weights differ by more than `MOST_RATIO`.
    """

    domain: Domain
    products: tuple[Product, ...]

    def __post_init__(self) -> None:
        if not self.products:
            raise InvalidParameter("a workload needs a query")
        for product in self.products:
            if product.queries.columns != self.domain.sizes:
                raise InvalidParameter(
                    "a product of queries does not fit the domain",
                    detail=f"Its factors have {product.queries.columns} levels,"
                    f" the domain has {self.domain.sizes}.",
                )
        weights = [abs(product.weight) for product in self.products]
        if max(weights) > MOST_RATIO * min(weights) * (1 + 1e-9):
            raise InvalidParameter(
                "the weights of queries differ too much",
                detail=f"The largest is {max(weights) / min(weights):g} times the smallest; at most"
                f" {MOST_RATIO:g} times is possible.",
                hint="Release queries that hardly count by themselves, with a small budget.",
            )

    @classmethod
    def of(cls, domain: Domain, *factors: Sequence[QueryMatrix]) -> Workload:
        """Unite conjunctive products of weight 1, each given by its factors."""
        return cls(domain, tuple(Product(Kronecker(tuple(f))) for f in factors))

    def scaled(self) -> tuple[Workload, float]:
        """Return the workload with a largest weight of 1, and by what it was divided."""
        largest = max(abs(product.weight) for product in self.products)
        products = tuple(replace(p, weight=p.weight / largest) for p in self.products)
        return Workload(self.domain, products), largest

    @property
    def queries(self) -> int:
        """The number of queries, exactly; what occurs twice counts twice."""
        return sum(product.queries.shape[0] for product in self.products)

    def matvec(self, table: Floats) -> list[Floats]:
        """Answer every product from the data vector: arrays of shape ``product.queries.rows``."""
        answers = []
        for product in self.products:
            plus, minus = product.parts()
            answer = plus.matvec(table)
            if minus is not None:
                answer = answer - minus.matvec(table)
            answers.append(product.weight * answer)
        return answers

    @cached_property
    def gram_terms(self) -> tuple[GramTerm, ...]:
        """The Gram matrix ``W^T W`` as a sum of Kronecker products.

        One term for conjunctions, four for disjunctions (HDMM, appendix A; two of the four are
        equal up to transposition, and none of them is symmetric for more than one attribute).
        Matrices that occur more than once are shared.
        """
        known: dict[QueryMatrix, Floats] = {}

        def gram(matrix: QueryMatrix) -> Floats:
            if matrix not in known:
                known[matrix] = matrix.gram()
            return known[matrix]

        terms = []
        for product in self.products:
            square = product.weight**2
            if product.either:
                terms += _disjunctive(product, square)
            else:
                factors = tuple(gram(factor) for factor in product.queries.factors)
                terms.append(GramTerm(square, factors))
        return tuple(terms)

    def gram(self) -> Floats:
        """Write the Gram matrix down, of shape (cells, cells).

        Raises
        ------
        InvalidParameter
            When it is too large for that.
        """
        refuse_entries(self.domain.cells, self.domain.cells)
        total: Floats = np.zeros((self.domain.cells, self.domain.cells))
        for term in self.gram_terms:
            total += term.coefficient * dense_product(term.factors)
        return total

    @cached_property
    def trace(self) -> float:
        """The squared Frobenius norm: the squared error of the strategy Identity."""
        return math.fsum(
            term.coefficient * math.prod(float(np.trace(f)) for f in term.factors)
            for term in self.gram_terms
        )

    def sensitivity(self, order: Order) -> float:
        """Find the largest L1 or L2 norm of a column of the union.

        Column norms are products over the attributes, and none is negative.  So where one level has
        the largest norm in every product, no other level of that attribute need be looked at, and
        marginals (of prefixes, too) of any number of cells take no memory.

        Raises
        ------
        InvalidParameter
            When the norms of all cells must be written down and do not fit, or for disjunctions.
        """
        if any(product.either for product in self.products):
            raise InvalidParameter("the sensitivity of disjunctions is not computed")
        norms = [[f.column_norms(order) for f in p.queries.factors] for p in self.products]
        kept = [_undominated(np.stack(levels)) for levels in zip(*norms, strict=True)]
        cells = math.prod(levels.shape[1] for levels in kept)
        refuse_entries(cells, 1)
        total = np.zeros(cells)
        for k, product in enumerate(self.products):
            own = dense_product([levels[k][:, None] for levels in kept])[:, 0]
            total += abs(product.weight) ** order * own
        return float(total.max() ** (1 / order))

    def kronecker_error(self, strategy: Kronecker, order: Order) -> float:
        """Total squared error, in units, when a Kronecker product is measured (HDMM, Theorem 6).

        Parameters
        ----------
        strategy : Kronecker
            What is measured.
        order : int
            1 for Laplace, 2 for Gaussian noise: the norm of the sensitivity.

        Raises
        ------
        InvalidParameter
            When the workload cannot be computed from the strategy's answers.
        """
        grams = strategy.grams()
        error = self.product_error(grams)
        return strategy.sensitivity(order) ** 2 * error

    def product_error(self, grams: Sequence[Floats]) -> float:
        """Find ``trace(G^+ W^T W)`` for a Kronecker product ``G`` of Gram matrices.

        That is the total squared error in units if the strategy has sensitivity 1.
        """
        inverses = [gram_pinv(gram) for gram in grams]
        onto = [inverse @ gram for inverse, gram in zip(inverses, grams, strict=True)]
        self._refuse_unsupported(
            math.fsum(
                t.coefficient * math.prod(map(_trace_of_product, onto, t.factors))
                for t in self.gram_terms
            )
        )
        return math.fsum(
            t.coefficient * math.prod(map(_trace_of_product, inverses, t.factors))
            for t in self.gram_terms
        )

    def dense_error(
        self, gram: Floats, inverse: Floats | None = None, tick: Tick = lambda: None
    ) -> float:
        """Find ``trace(G^+ W^T W)`` for a strategy's Gram matrix of shape (cells, cells).

        ``inverse`` is ``G^+`` where that is known; ``tick`` may raise to cancel.
        """
        inverse, own = gram_pinv(gram) if inverse is None else inverse, self.gram()
        tick()
        self._refuse_unsupported(_trace_of_product(matmul(inverse, gram, tick), own))
        tick()
        return _trace_of_product(inverse, own)

    def _refuse_unsupported(self, supported: float) -> None:
        # supported = ||W A^+ A||^2, of ||W||^2 at most
        if supported < (1 - SUPPORT_TOLERANCE) * self.trace:
            raise InvalidParameter(
                "the strategy does not support the workload",
                detail="A query of the workload is no linear combination of the strategy's.",
            )

    def rmse(self, error: float, deviation: float = 1.0) -> float:
        """Root mean squared error of a query (HDMM, section 11).

        Parameters
        ----------
        error : float
            Total squared error in units.
        deviation : float
            The noise's standard deviation for sensitivity 1: ``sqrt(2)/epsilon`` or ``sigma``.
        """
        return deviation * math.sqrt(error / self.queries)


def _undominated(norms: Floats) -> Floats:
    """Keep of the columns (levels) one that is largest in every row, else the distinct ones."""
    first = int(norms.sum(axis=0).argmax())
    if (norms[:, first] == norms.max(axis=1)).all():
        return norms[:, first : first + 1]
    return np.unique(norms, axis=1)


def _trace_of_product(left: Floats, right: Floats) -> float:
    """Find ``trace(left right)``."""
    return float(np.einsum("ij,ji->", left, right))


def _disjunctive(product: Product, square: float) -> list[GramTerm]:
    """Expand the Gram matrix of ``plus - minus``."""
    plus, minus = product.parts()
    if minus is None:
        return [GramTerm(square, tuple(plus.grams()))]
    cross = []
    for i, (left, right) in enumerate(zip(plus.factors, minus.factors, strict=True)):
        cross.append(left.dense().T @ right.dense() if i in product.either else left.gram())
    return [
        GramTerm(square, tuple(plus.grams())),
        GramTerm(-square, tuple(cross)),
        GramTerm(-square, tuple(factor.T for factor in cross)),
        GramTerm(square, tuple(minus.grams())),
    ]
