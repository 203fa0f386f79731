"""Answers without negative counts, or of whole ones, that agree with each other.

Functions of noisy measurements alone, hence free (PRIVACY.md section 2 (b)).  Small domains: the
nearest data vector on the simplex.  Large ones, and measurements that leave something out: a
mixture fitted to the residuals, of which all tables are marginals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from operator import or_

import numpy as np

from dpsql.errors import InvalidParameter
from dpsql.workload.matrix import Floats
from dpsql.workload.mechanism import Mechanism, answers_of, mask_of_product, over_all
from dpsql.workload.mixture import MAX_LEVELS, fit_mixture
from dpsql.workload.mixture_rows import count_rows, sample_rows
from dpsql.workload.postprocess import project_simplex, round_to_total

#: Cells of the largest domain whose data vector is estimated.
MOST_CELLS = 1 << 23
#: Whose estimates are fitted by a mixture whatever the domain: they leave something out.
FITTED = ("aim", "pairs")


def require_postprocessing(mechanism: Mechanism) -> None:
    """Refuse what cannot be post-processed, before anything is charged.

    Raises
    ------
    InvalidParameter
        When the domain is too large for its data vector and the mechanism's estimates are not
        residuals of marginals.
    """
    domain = mechanism.workload.domain
    if _by_vector(mechanism):
        return
    if not mechanism.plain_residuals or sum(domain.sizes) > MAX_LEVELS:
        raise InvalidParameter(
            "the domain is too large to be post-processed as a whole",
            detail=f"It has {domain.cells} cells; at most {MOST_CELLS} are.",
            hint="Use postprocess => 'none', and greatest(value, 0) where negative values disturb;"
            " or ask for grouping sets without prefixes and ranges.",
        )


def postprocessed(
    mechanism: Mechanism,
    measured: Sequence[Floats],
    *,
    integral: bool,
    tick: Callable[[], None],
) -> Iterator[Floats]:
    """Yield the answers to each product of the workload, in order.

    Parameters
    ----------
    mechanism : Mechanism
        One that `require_postprocessing` lets pass.
    measured : sequence of array
        What it measured.
    integral : bool
        Whether numbers are whole.
    tick : callable
        Called now and then; may raise to cancel.
    """
    if _by_vector(mechanism):
        vector = mechanism.vector(measured)
        vector = project_simplex(vector, float(vector.sum()))
        if integral:
            vector = round_to_total(vector).astype(np.float64)
        yield from answers_of(vector, mechanism.workload)
        return
    model = fit_mixture(mechanism.residuals(measured), tick=tick)
    rows = sample_rows(model, tick=tick) if integral else None
    sizes = mechanism.workload.domain.sizes
    for product in mechanism.workload.products:
        tick()
        mask = mask_of_product(product)
        if rows is None:
            table = model.marginal(mask)
        else:
            table = count_rows(rows, sizes, [mask])[mask].astype(np.float64)
        values = over_all(table, mask, len(sizes))
        for i, factor in enumerate(product.queries.factors):
            if mask >> i & 1:
                values = factor.matvec(values, i)
            else:
                column = factor.dense()[:, :1]
                values = np.moveaxis(np.tensordot(column, values, axes=(1, i)), 0, i)
        yield values


def _by_vector(mechanism: Mechanism) -> bool:
    """Whether the data vector itself is estimated: not where only marginals of it were measured.

    Of a vector that hardly anything is known of the nearest one without negative entries is far
    from the data (measured: three-way marginals off by 0.49 that were off by 0.17 before).
    """
    if mechanism.name in FITTED or mechanism.workload.domain.cells > MOST_CELLS:
        return False
    if not mechanism.plain_residuals or any(p.either for p in mechanism.workload.products):
        return True
    asked = reduce(or_, map(mask_of_product, mechanism.workload.products))
    return any(m.mask == asked for m in mechanism.measurements)
