"""Plain counts must stay cheap in a fresh backend; randomness has one source."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CODE = """
import sys
from fractions import Fraction
from dpsql.core import sensitivity
from dpsql.core.mechanisms import select
from dpsql.core.rng import SystemNoise
from dpsql.model import Boundary, Shape
E = frozenset
one = Shape((E(),), (0,), ((),))
assert sensitivity.is_public(one) and not sensitivity.required(one)
plan = select.choose("auto", Fraction(1), Fraction(0), 1, True, True, 1)
bound = sensitivity.bound(one, {}, plan.beta)
assert bound.exact == 1
plan.release([10], bound.exact, SystemNoise())
path = Shape((E({0}), E({0, 1}), E({1})), (0, 1, 2), ((), (), ()))
values = {b: 3 for b in sensitivity.required(path)}
assert sensitivity.bound(path, values, 0.02).value > 9
loaded = {"numpy", "scipy", "opendp"} & set(sys.modules)
assert not loaded, loaded
"""


def test_plain_counts_and_three_way_paths_load_no_heavy_library() -> None:
    root = Path(__file__).parents[3]
    subprocess.run([sys.executable, "-c", CODE], check=True, cwd=root)


def test_only_the_random_source_draws() -> None:
    core = Path(__file__).parents[3] / "dpsql"
    for path in core.rglob("*.py"):
        if path.name != "rng.py":
            text = path.read_text()
            for word in ("urandom", "import secrets", "import random", "numpy.random"):
                assert word not in text, path
