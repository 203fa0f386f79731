"""Answers without negative counts, or of whole ones, that agree with each other.

Functions of noisy measurements alone, hence free (PRIVACY.md section 2 (b)).  Small domains: a
data vector without negative entries (`dpsql.workload.nonnegative`).  Large ones of which only
marginals were measured, and measurements that leave something out: a mixture fitted to the
residuals, of which all tables are marginals; or, on request, a graphical model
(`dpsql.workload.pgm`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from operator import or_

import numpy as np

from dpsql.errors import InvalidParameter
from dpsql.workload.matrix import Floats
from dpsql.workload.mbi_loaded import require_mbi
from dpsql.workload.mechanism import Mechanism, mask_of_product, over_all
from dpsql.workload.mechanism_residuals import require_few_residuals
from dpsql.workload.mixture import MAX_LEVELS, fit_mixture
from dpsql.workload.mixture_rows import count_rows, sample_rows
from dpsql.workload.nonnegative import Asked, nonnegative, whole
from dpsql.workload.pgm import fit_model, require_model

#: Cells of the largest domain whose data vector is estimated.
MOST_CELLS = 1 << 23
#: Cells up to which it always is, but for those below.
FEW_CELLS = 1 << 16
#: Whose estimates are fitted by a mixture whatever the domain: they leave something out.
FITTED = ("aim", "aim_pgm", "pairs")


def require_postprocessing(mechanism: Mechanism, way: str) -> None:
    """Refuse what cannot be post-processed, before anything is charged.

    Parameters
    ----------
    mechanism : Mechanism
        The one chosen.
    way : str
        ``non_negative``, ``integral`` or ``pgm``.

    Raises
    ------
    InvalidParameter
        When the domain is too large for its data vector and the mechanism's estimates are not
        residuals of marginals; when a graphical model would be too large, or mbi is missing.
    """
    domain = mechanism.workload.domain
    if _by_model(mechanism, way):
        _require_model(mechanism)
        return
    if _by_vector(mechanism):
        return
    if mechanism.plain_residuals and sum(domain.sizes) > MAX_LEVELS:
        raise InvalidParameter(
            "the keys have too many levels for a mixture that would be fitted to what is measured",
            detail=f"They have {sum(domain.sizes)} together; at most {MAX_LEVELS} are fitted.",
            hint="Use postprocess => 'none', and greatest(value, 0) where negative values disturb;"
            " or coarser keys.",
        )
    if not mechanism.plain_residuals:
        raise InvalidParameter(
            "the domain is too large to be post-processed as a whole",
            detail=f"It has {domain.cells} cells; at most {MOST_CELLS} are.",
            hint="Use postprocess => 'none', and greatest(value, 0) where negative values disturb;"
            " or ask for grouping sets without prefixes and ranges.",
        )


def postprocessed(
    mechanism: Mechanism,
    measured: Sequence[Floats],
    way: str,
    *,
    tick: Callable[[], None],
) -> Iterator[Floats]:
    """Yield the answers to each product of the workload, in order.

    Parameters
    ----------
    mechanism : Mechanism
        One that `require_postprocessing` lets pass.
    measured : sequence of array
        What it measured.
    way : str
        ``non_negative``, ``integral`` (numbers are whole) or ``pgm``.
    tick : callable
        Called now and then; may raise to cancel.
    """
    integral = way == "integral"
    if _by_model(mechanism, way):
        graphical = fit_model(mechanism.residuals(measured), tick=tick)
        yield from _from_marginals(mechanism, graphical.marginal, tick)
        return
    if _by_vector(mechanism):
        asked = Asked(mechanism.workload)
        table = nonnegative(asked, asked.reduced(mechanism.vector(measured)), tick)
        if integral:
            table = whole(asked, table, tick).astype(np.float64)
        yield from asked.answers(table)
        return
    mixture = fit_mixture(mechanism.residuals(measured), tick=tick)
    if not integral:
        yield from _from_marginals(mechanism, mixture.marginal, tick)
        return
    rows, sizes = sample_rows(mixture, tick=tick), mechanism.workload.domain.sizes
    yield from _from_marginals(
        mechanism, lambda mask: count_rows(rows, sizes, [mask])[mask].astype(np.float64), tick
    )


def _from_marginals(
    mechanism: Mechanism, marginal: Callable[[int], Floats], tick: Callable[[], None]
) -> Iterator[Floats]:
    """Answer each product from marginals that agree with each other."""
    attributes = len(mechanism.workload.domain.sizes)
    for product in mechanism.workload.products:
        tick()
        mask = mask_of_product(product)
        values = over_all(marginal(mask), mask, attributes)
        for i, factor in enumerate(product.queries.factors):
            if mask >> i & 1:
                values = factor.matvec(values, i)
            else:
                column = factor.dense()[:, :1]
                values = np.moveaxis(np.tensordot(column, values, axes=(1, i)), 0, i)
        yield values


def _by_model(mechanism: Mechanism, way: str) -> bool:
    """Whether tables are those of a graphical model: what aim_pgm reconstructs are already."""
    return way == "pgm" or (way == "non_negative" and mechanism.name == "aim_pgm")


def _require_model(mechanism: Mechanism) -> None:
    products = mechanism.workload.products
    if not mechanism.plain_marginals or any(product.either for product in products):
        raise InvalidParameter(
            f"what {mechanism.name} measures here are no marginals, of which a model could be made",
            hint="Use mechanism => 'residual_planner', 'pairs' or 'aim', for grouping sets without"
            " prefixes and ranges.",
        )
    require_mbi()
    if mechanism.name == "aim_pgm":
        return  # its rounds see to that
    sizes = mechanism.workload.domain.sizes
    # AIM may measure whatever is asked for
    measured = [m.mask for m in mechanism.measurements] or list(map(mask_of_product, products))
    require_few_residuals(measured)
    require_model(sizes, measured)


def _by_vector(mechanism: Mechanism) -> bool:
    """Whether a data vector is estimated: not of a large domain of which marginals were measured.

    There a mixture says more of rows that hardly anything is known of.
    """
    if mechanism.name in FITTED or mechanism.workload.domain.cells > MOST_CELLS:
        return False
    if not mechanism.plain_residuals or any(p.either for p in mechanism.workload.products):
        return True
    if mechanism.workload.domain.cells <= FEW_CELLS:
        return True
    asked = reduce(or_, map(mask_of_product, mechanism.workload.products))
    return any(m.mask == asked for m in mechanism.measurements)
