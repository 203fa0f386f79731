"""Private-PGM: the graphical model nearest to noisy residuals, fitted by the library mbi.

Of all distributions over the domain that fit what was measured best, the one of largest entropy is
a graphical model over the measured attribute sets (McKenna, Sheldon and Miklau 2019), kept as
one table per clique of a junction tree: its marginals are non-negative and agree with each other,
whatever the size of the domain, as long as the tree fits memory.  The misfit is

    ``chi^2 = sum_B precision_B |K (residual_B(model) - z_B)|^2``,

the exact one of all Gaussian measurements together (papers/aim-grem.txt, Theorem 4.1): the noise
of a residual is white after ``K``, which takes the mean off along each axis, and residuals over
different sets are independent.  Marginals with independent noise enter by their residuals.  The
number of rows is the total that was measured.

mbi passes messages and descends (InteriorGradient); here are the start, the end and the tables.
A fit is a function of residuals and precisions alone, post-processing of public values: it costs
no budget (PRIVACY.md section 2 (b)).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial, reduce
from typing import Any

import numpy as np

from dpsql.errors import InvalidParameter, ReleaseFailed
from dpsql.workload.axis import recon
from dpsql.workload.grem import Residuals
from dpsql.workload.junction_tree import JunctionTree, junction_tree, model_cells
from dpsql.workload.marginals import Floats, attributes_of, cells, shape
from dpsql.workload.mbi_loaded import load
from dpsql.workload.postprocess import project_simplex
from dpsql.workload.residual_bases import Subtraction

#: Cells of the largest model that is fitted after the measurement: 16 MB.
MOST_CELLS = 1 << 21
#: Part of the rows that the start spreads evenly: no cell may begin with nothing.
_EVEN = 1e-6
_FEWEST = 400


@dataclass(frozen=True)
class Settings:
    """When a fit ends.

    Attributes
    ----------
    steps : int
        Most steps of descent.
    work : int
        Most cells of a model times steps, but never fewer than 400 steps: about a minute.
    gain : float
        It ends when 50 steps take less than this part off ``chi^2``, twice in a row.
    stop : float
        Or when ``chi^2`` is at most this many times the degrees of freedom: who fits better
        fits noise (the discrepancy principle, as in `dpsql.workload.mixture`).
    """

    steps: int = 20_000
    work: int = 1 << 29
    gain: float = 1e-3
    stop: float = 1.0


@dataclass(frozen=True)
class GraphicalModel:
    """A distribution over the domain, times a number of rows.

    Attributes
    ----------
    tree : JunctionTree
        Over the measured sets of attributes.
    tables : dict of clique to array
        Its marginals over the cliques.
    total : float
        Rows.
    """

    tree: JunctionTree
    tables: dict[int, Floats]
    total: float

    def marginal(self, mask: int) -> Floats:
        """Return a marginal, one axis per attribute, ascending."""
        return self.tree.marginal(self.tables, mask)


def require_model(sizes: Sequence[int], masks: Iterable[int], most: int = MOST_CELLS) -> None:
    """Refuse models that would not fit memory, from what will be measured.

    Raises
    ------
    InvalidParameter
        Tells the size.
    """
    found = model_cells(sizes, masks)
    if found > most:
        raise InvalidParameter(
            f"the graphical model of what is measured would take {_megabytes(found)} MB",
            detail=f"Its junction tree has {found} cells; at most {most} are fitted"
            f" ({_megabytes(most)} MB).",
            hint="Ask for fewer pairs of keys together, or use postprocess => 'non_negative'.",
        )


def fit_model(
    residuals: Residuals,
    settings: Settings | None = None,
    *,
    tick: Callable[[], None] | None = None,
) -> GraphicalModel:
    """Fit a graphical model to residual estimates.

    Parameters
    ----------
    residuals : Residuals
        With subtraction bases; the total must be among them.
    settings : Settings, optional
    tick : callable, optional
        Called every 50 steps; may raise.

    Raises
    ------
    InvalidParameter
        If the total was not measured, a basis is no subtraction, or mbi is not installed.
    ReleaseFailed
        If the fit breaks down numerically.
    """
    if 0 not in residuals.values:
        raise InvalidParameter("a graphical model needs a measurement of the total")
    if not all(isinstance(basis, Subtraction) for basis in residuals.bases):
        raise InvalidParameter("a graphical model is fitted to residuals by subtraction only")
    chosen, call = settings or Settings(), tick or (lambda: None)
    sizes = [basis.size for basis in residuals.bases]
    measured = [b for b, values in residuals.values.items() if b and values.size]
    tree = junction_tree(sizes, measured)
    total = max(1.0, float(residuals.values[0]))
    shares = _shares(residuals, sizes, total)
    call()
    if measured:
        tables = _descend(residuals, measured, tree, shares, chosen, call)
    else:
        tables = _independent(tree, shares, total)
    return GraphicalModel(tree, tables, total)


def _shares(residuals: Residuals, sizes: Sequence[int], total: float) -> list[Floats]:
    """Return where every attribute starts: as its own marginal says, almost."""
    found = []
    for i, n in enumerate(sizes):
        ((_, table),) = residuals.marginals([1 << i])
        found.append((1 - _EVEN) * project_simplex(table, total) / total + _EVEN / n)
    return found


def _independent(tree: JunctionTree, shares: Sequence[Floats], total: float) -> dict[int, Floats]:
    """Return the tables of independent attributes."""
    return {
        clique: reduce(
            np.multiply.outer, (shares[i] for i in attributes_of(clique)), np.array(total)
        )
        for clique in tree.cliques
    }


def _potentials(tree: JunctionTree, shares: Sequence[Floats]) -> dict[int, Floats]:
    """Return logarithms of the same distribution, each attribute's in one clique."""
    done, found = 0, {}
    for clique in tree.cliques:
        table = np.zeros(shape(tree.sizes, clique))
        for axis, i in enumerate(attributes_of(clique)):
            if not done >> i & 1:
                along = (1,) * axis + (-1,) + (1,) * (table.ndim - axis - 1)
                table += np.log(shares[i]).reshape(along)
        found[clique] = table
        done |= clique
    return found


def _descend(
    residuals: Residuals,
    measured: Sequence[int],
    tree: JunctionTree,
    shares: Sequence[Floats],
    settings: Settings,
    tick: Callable[[], None],
) -> dict[int, Floats]:
    """Fit by mbi; returns the tables of the cliques."""
    mbi, jax = load()
    total = max(1.0, float(residuals.values[0]))
    domain = mbi.Domain(range(len(tree.sizes)), tree.sizes)
    names = {c: attributes_of(c) for c in tree.cliques}

    def vector(tables: Mapping[int, Floats]) -> Any:
        factors = {
            name: mbi.Factor(domain.project(name), jax.numpy.asarray(tables[c]))
            for c, name in names.items()
        }
        return mbi.CliqueVector(domain, tuple(factors), factors)

    targets = {
        attributes_of(b): (recon(residuals.values[b], b, b, residuals.bases), precision)
        for b, precision in residuals.precisions.items()
        if b in measured
    }
    # The largest second derivative between two cells of the domain: entropy is 1-strongly convex
    # in the L1 norm, so that steps of its inverse are safe.
    curvature = math.fsum(
        precision * math.prod(1 - 1 / tree.sizes[i] for i in name)
        for name, (_, precision) in targets.items()
    )
    loss = mbi.MarginalLossFn(tuple(names.values()), jax.jit(misfit), targets, curvature)
    network = _network(tree)
    oracle = partial(mbi.marginal_oracles.message_passing_hugin, jtree=network)
    model_size = sum(cells(tree.sizes, clique) for clique in tree.cliques)
    freedom = sum(residuals.values[b].size for b in measured)
    estimator = _estimator()(marginal_oracle=oracle, least=settings.stop * freedom / 2)
    begin = vector(_potentials(tree, shares)), vector(_independent(tree, shares, total))
    try:
        found = estimator.estimate(
            domain,
            loss,
            total,
            iters=min(settings.steps, max(_FEWEST, settings.work // model_size)),
            callback_fn=lambda _: tick(),
            warm_start=begin,
            tol=settings.gain,
        )
        tables = {c: np.maximum(found.tables[name].values, 0.0) for c, name in names.items()}
    finally:
        jax.clear_caches()  # every model is another program
    if not all(np.isfinite(table).all() for table in tables.values()):
        raise ReleaseFailed(
            "the fit of a graphical model broke down",
            hint="Release the same with another postprocess: a mechanism that had measured is not"
            " paid again.",
        )
    return tables


def misfit(marginals: Any, targets: Mapping[tuple[int, ...], tuple[Any, Any]]) -> Any:
    """Return half of ``chi^2``; ``targets`` holds centred residuals and their precisions."""
    total = 0.0
    for name, (target, precision) in targets.items():
        gap = centred(marginals.project(name).values) - target
        total = total + precision * (gap * gap).sum() / 2
    return total


def centred(table: Any) -> Any:
    """Take the mean off along every axis: ``K`` of the residual over all of them."""
    for axis in range(table.ndim):
        table = table - table.mean(axis=axis, keepdims=True)
    return table


def _network(tree: JunctionTree) -> Any:
    """Write a tree as mbi reads it."""
    import networkx

    graph = networkx.Graph()
    graph.add_nodes_from(map(attributes_of, tree.cliques))
    graph.add_edges_from((attributes_of(a), attributes_of(b)) for a, b in tree.edges if a & b)
    return graph


@cache
def _estimator() -> Any:
    """Return mbi's InteriorGradient with a start and an end of our own.

    mbi's start costs two programs more to compile, and its end fits potentials again, which nobody
    here reads: descent averages marginals, and averages of marginals are marginals.
    """
    mbi, jax = load()
    numbers = jax.numpy
    original: Any = mbi.estimation.InteriorGradient

    @dataclass(frozen=True)
    class Descent(original):  # type: ignore[misc]
        """Starts at given potentials and their marginals; returns marginals."""

        least: float = 0.0

        def _init(
            self,
            domain: Any,  # noqa: ARG002
            loss_fn: Any,
            known_total: float,  # noqa: ARG002
            *,
            warm_start: Any,
            constraints: Any = (),  # noqa: ARG002
        ) -> Any:
            potentials, x = warm_start
            loss, rate = numbers.asarray(math.inf), 1.0 / loss_fn.lipschitz
            return mbi.estimation.InteriorGradientState(x, potentials, 1.0, x, x, loss, rate)

        def _loss_value(self, state: Any, *_: Any) -> Any:
            return max(float(state.loss), self.least)

        def _finalize(self, state: Any, *_: Any, **__: Any) -> Any:
            return state.x

    return Descent


def _megabytes(found: int) -> str:
    return f"{found * 8 / 2**20:.1f}"
