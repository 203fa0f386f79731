"""Private-PGM: the graphical model nearest to noisy residuals.

Of all distributions over the domain that fit what was measured best, the one of largest entropy is
a graphical model over the measured attribute sets (McKenna, Sheldon and Miklau 2019), kept as
one table per clique of a junction tree: its marginals are non-negative and agree with each other,
whatever the size of the domain, as long as the tree fits memory.  The misfit is

    ``chi^2 = sum_B precision_B |K (residual_B(model) - z_B)|^2``,

the exact one of all Gaussian measurements together (papers/aim-grem.txt, Theorem 4.1): the noise
of a residual is white after ``K``, which takes the mean off along each axis, and residuals over
different sets are independent.  Marginals with independent noise enter by their residuals.  The
number of rows is the total that was measured.

Messages are passed in numpy (`dpsql.workload.belief`): the authors' library mbi compiles each
model, of which AIM has another one in every round.  A fit is a function of residuals and precisions
alone, post-processing of public values: it costs no budget (PRIVACY.md section 2 (b)).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from dpsql.errors import InvalidParameter, ReleaseFailed
from dpsql.workload.axis import recon
from dpsql.workload.belief import Belief, outside
from dpsql.workload.grem import Residuals
from dpsql.workload.junction_tree import JunctionTree, junction_tree, model_cells
from dpsql.workload.marginals import Floats, attributes_of, cells, shape
from dpsql.workload.postprocess import project_simplex
from dpsql.workload.residual_bases import Subtraction

#: Cells of the largest model that is fitted after the measurement: 16 MB.
MOST_CELLS = 1 << 21
#: Part of the rows that the start spreads evenly: no cell may begin with nothing.
_EVEN = 1e-6
_FEWEST = 400
#: Steps between looks at a cancel, and at how much was gained.
_LOOK, _STEPS = 10, 50


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
        Called every 10 steps; may raise.

    Raises
    ------
    InvalidParameter
        If the total was not measured, or a basis is no subtraction.
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


@dataclass(frozen=True)
class Target:
    """What a marginal of a clique is compared with.

    Attributes
    ----------
    clique, mask : int
        Where the marginal is taken, and of what attributes: a maximal measured set.
    parts : tuple of (axes, array, float)
        Of each residual: the axes of the marginal that it sums over, its centred value in shares
        of the rows, and its precision.
    """

    clique: int
    mask: int
    parts: tuple[tuple[tuple[int, ...], Floats, float], ...]


def _targets(
    residuals: Residuals, measured: Sequence[int], tree: JunctionTree, total: float
) -> list[Target]:
    """List what is measured by maximal sets, each within its smallest clique."""
    largest = [m for m in measured if not any(m != o and m & ~o == 0 for o in measured)]
    inside: dict[int, list[int]] = {m: [] for m in largest}
    for b in measured:
        above = (m for m in largest if b & ~m == 0)
        inside[min(above, key=lambda m: cells(tree.sizes, m))].append(b)
    found = []
    for m, own in inside.items():
        clique = tree.clique_of(m & tree.several)
        parts = tuple(
            (
                outside(m, b),
                recon(residuals.values[b], b, b, residuals.bases) / total,
                residuals.precisions[b],
            )
            for b in own
        )
        found.append(Target(clique or 0, m, parts))
    return found


def _descend(
    residuals: Residuals,
    measured: Sequence[int],
    tree: JunctionTree,
    shares: Sequence[Floats],
    settings: Settings,
    tick: Callable[[], None],
) -> dict[int, Floats]:
    """Fit by the improved interior gradient (Auslender and Teboulle 2006, algorithm 2).

    Of all averages of marginals seen so far one moves along the gradient in the potentials, in
    steps that the largest second derivative allows: entropy is 1-strongly convex in the L1 norm.
    """
    total = max(1.0, float(residuals.values[0]))
    targets = _targets(residuals, measured, tree, total)
    curvature = math.fsum(
        precision * math.prod(1 - 1 / tree.sizes[i] for i in attributes_of(b))
        for b, precision in residuals.precisions.items()
        if b in measured
    )
    freedom = sum(residuals.values[b].size for b in measured)
    belief, potentials = Belief(tree), _potentials(tree, shares)
    average = latest = belief.shares(potentials)
    model_size = sum(cells(tree.sizes, clique) for clique in tree.cliques)
    weight, before, slow = 1.0, math.inf, 0
    for step in range(min(settings.steps, max(_FEWEST, settings.work // model_size))):
        if step % _LOOK == 0:
            tick()
        part = weight / curvature
        share = (math.sqrt(part * part + 4 * part) - part) / 2
        middle = {c: (1 - share) * average[c] + share * latest[c] for c in tree.cliques}
        loss, slopes = misfit(middle, targets)
        chi2 = 2 * loss * total * total
        if not math.isfinite(chi2):
            raise ReleaseFailed(
                "the fit of a graphical model broke down",
                hint="Release the same with another postprocess: a mechanism that had measured is"
                " not paid again.",
            )
        if chi2 <= settings.stop * freedom:
            average = middle
            break
        if step % _STEPS == 0:
            slow = slow + 1 if chi2 >= (1 - settings.gain) * before else 0
            before = chi2
            if slow == 2:
                break
        weight *= 1 - share
        for target, slope in zip(targets, slopes, strict=True):
            moved = np.expand_dims(slope * (share / weight), outside(target.clique, target.mask))
            potentials[target.clique] -= moved
        latest = belief.shares(potentials)
        average = {c: (1 - share) * average[c] + share * latest[c] for c in tree.cliques}
    return {c: table * total for c, table in average.items()}


def misfit(tables: Mapping[int, Floats], targets: Sequence[Target]) -> tuple[float, list[Floats]]:
    """Return half of ``chi^2`` in shares, and its slopes by the marginals of the targets."""
    total, slopes = 0.0, []
    for target in targets:
        table = tables[target.clique].sum(axis=outside(target.clique, target.mask))
        slope = np.zeros_like(table)
        for axes, wanted, precision in target.parts:
            gap = centred(table.sum(axis=axes)) - wanted
            total += precision * float(np.vdot(gap, gap)) / 2
            slope += np.expand_dims(precision * gap, axes)
        slopes.append(slope)
    return total, slopes


def centred(table: Floats) -> Floats:
    """Take the mean off along every axis: ``K`` of the residual over all of them."""
    for axis in range(table.ndim):
        table = table - table.mean(axis=axis, keepdims=True)
    return table


def _megabytes(found: int) -> str:
    return f"{found * 8 / 2**20:.1f}"
