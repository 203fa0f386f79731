"""Rows that a constraint refuses get the attributes of other rows of their batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from dpsql.synthesis.values import Numbers

#: Rounds: first with values of one other row together; then with those of one row each, and in turn
#: with them of one of the good rows, which were few or none before.
_TOGETHER = 20
_APART = 40


def mend(
    numbers: dict[str, Numbers],
    free: tuple[str, ...],
    failing: Callable[[Mapping[str, Numbers]], Mapping[int, int]],
    seed: tuple[int, ...],
) -> int | None:
    """Change rows in place until none is refused.

    Parameters
    ----------
    numbers : dict of (str, array)
        The columns of a batch.
    free : tuple of str
        Those whose values may be replaced by those of another row.
    failing : callable
        Tells of columns which rows are refused, and by which constraint.
    seed : tuple of int
        Equal seeds give equal rows.

    Returns
    -------
    int or None
        The constraint that a row still breaks; None when all rows are good.
    """
    total = next(iter(numbers.values())).size if numbers else 0
    failed = dict(failing(numbers))
    if not failed:
        return None
    rng = np.random.default_rng([*seed, 3])
    broken = np.array(sorted(failed), dtype=np.int64)
    good = np.setdiff1d(np.arange(total), broken)
    for turn in range(_TOGETHER + 2 * _APART if free else 0):
        together = turn < _TOGETHER or turn % 2 == 1
        if together and not good.size:
            continue
        changed = {name: array[broken] for name, array in numbers.items()}
        donors = rng.choice(good if good.size else total, broken.size)
        for name in free:
            if not together:
                donors = rng.choice(total, broken.size)
            changed[name] = numbers[name][donors]
        still = failing(changed)
        mended = np.ones(broken.size, dtype=bool)
        mended[list(still)] = False
        for name in free:
            numbers[name][broken[mended]] = changed[name][mended]
        good = np.concatenate([good, broken[mended]])
        failed = {int(broken[n]): which for n, which in still.items()}
        broken = broken[~mended]
        if not broken.size:
            return None
    return failed[int(broken[0])]
