"""Types: how the rows of each are spread over marginals, in each of the forms that are kept."""

from __future__ import annotations

import numpy as np
import pytest

from dpsql.synthesis.types import types_of
from dpsql.workload.marginals import cells
from tests.unit.synthesis.linking import records


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("sizes", "rows"),
    [((3, 4, 2), 500), ((50, 40, 3), 300), ((2000, 1500, 2), 400)],  # an array, sparse, by sorting
)
def test_the_spread_is_what_rows_say(sizes: tuple[int, ...], rows: int, weighted: bool) -> None:
    rng = np.random.default_rng(11)
    table = records(rows, sizes, rng)
    weights = rng.integers(0, 3, rows) if weighted else None
    for used in (0, 1, 3, 7):
        types = types_of(table, used)
        for mask in (1, 2, 4, 6, 3):
            size = cells(sizes, mask)
            if size * types.number > 4_000_000:
                continue
            found = types.spread(table, mask, size, weights)
            dense = found if isinstance(found, np.ndarray) else found.toarray()
            expected = np.zeros((size, types.number))
            np.add.at(expected, (table.codes(mask), types.of), 1.0 if weights is None else weights)
            sums = expected.sum(axis=0)
            expected /= np.where(sums > 0, sums, 1.0)
            assert np.abs(dense - expected).max() < 1e-12
