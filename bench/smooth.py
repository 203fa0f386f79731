"""Processor time of the smooth maximum for five private relations at beta = 0.01.

``python -m bench.smooth [--rounds 5]``.  The polynomials are those that the property tests find
hard, once as a dense one in five distances and once as five relations have them (each relation's
residual in the four others).  Prints a table and, last, one JSON line; needs no server.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

from dpsql.core.smooth import smooth_maximum
from tests.property.test_core_smooth import HARD, all_subsets

BETA = 0.01


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    rows = []
    for name, coefficient in HARD.items():
        dense = all_subsets(5, coefficient)
        five = [{p: c for p, c in dense.items() if not p[i]} for i in range(5)]
        smooth_maximum(five, 0.3, 5)  # imports
        row: dict[str, Any] = {"polynomial": name}
        for key, family in (("relations_ms", five), ("dense_ms", [dense])):
            row[key] = round(statistics.median(_time(family) for _ in range(rounds)), 1)
        rows.append(row)
        print(
            f"{name:24} five relations {row['relations_ms']:>7} ms  dense {row['dense_ms']:>7} ms"
        )
    print(json.dumps({"bench": "smooth", "rows": rows}))


def _time(family: list[dict[tuple[int, ...], int]]) -> float:
    start = time.process_time()
    smooth_maximum(family, BETA, 5)
    return (time.process_time() - start) * 1e3


if __name__ == "__main__":
    main()
