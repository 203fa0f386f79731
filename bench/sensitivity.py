"""The evaluation of "Sensitivity estimation for differentially private query processing", again.

``python -m bench.sensitivity [--parts epsilon,time,rate,group,scale] [--sf 0.1]
[--scales 0.01,0.1,1] [--queries Q1,Q4] [--rounds 5]``, on the cluster that ``make up`` started.
Writes SVG figures and, last, one JSON line.
``noise_scale`` is the scale of the noise that a mechanism adds at this sensitivity (of
``calibrated``, which draws it, the median), ``median_error`` the median of the absolute noise,
``ms`` the time of the sensitivity alone; ``null`` where a method refuses, which ``why`` explains.
``--draw FILE`` draws the figures of a JSON line that was kept.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

from bench.evaluation import (
    METHODS,
    SAMPLING,
    Row,
    Target,
    ask,
    mechanisms,
    medians,
    private,
    report,
    targets,
    truth,
)
from bench.queries import TPCH

EPSILONS = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8)
RATES = (1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3)
#: The sampling rate of all parts but ``rate``.
RATE = 1e-4
#: The figures of rates are about these; of the other queries, three rates under one mechanism.
RATED = ("Q1", "Q4")
FEW_RATES = (1e-5, 1e-4, 1e-3)
#: Part ``group``: the largest group of this residual query is the sensitivity at a large beta.
GROUP = (
    "edge1, near2, near3, near4, near5",
    "edge1_to = edge2_from and edge2_to = edge3_from and edge3_to = edge4_from "
    "and edge4_to = edge5_from",
)


def main() -> None:
    """Measure, draw and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", default="epsilon,time,rate,group,scale")
    parser.add_argument("--sf", default="0.1", help="TPC-H scale factor of all parts but scale")
    parser.add_argument("--scales", default="0.01,0.05,0.1,0.5,1", help="those of part scale")
    parser.add_argument("--queries", default="Q1,Q2,Q3,Q4,Q5,Q6,Q7,Q8")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--figures", type=Path, default=Path("docs/figures"))
    parser.add_argument("--draw", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    if arguments.draw:
        rows = json.loads(arguments.draw.read_text().splitlines()[-1])["rows"]
    else:
        rows = list(_measure(arguments))
    from bench.figures import draw

    draw(rows, arguments.figures)
    if not arguments.draw:
        print(json.dumps({"bench": "sensitivity", "rows": rows}))


def _measure(arguments: argparse.Namespace) -> Iterator[Row]:
    parts = arguments.parts.split(",")
    wanted = arguments.queries.split(",")
    if set(parts) - {"scale"}:
        found = targets(wanted, arguments.sf)
        for target in found:
            if "epsilon" in parts:
                yield from _epsilon(target)
            if "time" in parts:
                yield from _time(target, arguments.rounds)
            if "rate" in parts:
                yield from _rate(target, arguments.rounds)
            if "group" in parts and target.name == "Q4":
                yield from _group(target, arguments.rounds)
    if "scale" in parts:
        for scale in arguments.scales.split(","):
            for target in targets([n for n in wanted if n in TPCH], scale):
                yield from _scale(target, arguments.rounds)


def _epsilon(target: Target) -> Iterator[Row]:
    """Noise against epsilon (figures 5 and 6)."""
    with target.connect() as connection:
        connection.execute(f"set dp.sampling_rate = {RATE}")
        answer = {"truth": truth(connection, target)}
        refused: dict[str, Row] = {}
        for epsilon in EPSILONS:
            for mechanism in mechanisms(epsilon, private(connection, target)):
                for label in METHODS:
                    if label.endswith("filtered") or (
                        label in SAMPLING and mechanism.name == "laplace_published"
                    ):
                        continue  # every point of sampling is a run of its own
                    asked = refused.get(label) or ask(connection, target, label, mechanism.beta)
                    if asked["ms"] is None:
                        refused[label] = asked
                    yield report("epsilon", target, epsilon, label, mechanism, asked) | answer
        print(f"{target.name}: noise against epsilon done", flush=True)


def _time(target: Target, rounds: int) -> Iterator[Row]:
    """Time per query (figure 8)."""
    with target.connect() as connection:
        connection.execute(f"set dp.sampling_rate = {RATE}")
        mechanism = next(mechanisms(0.8, private(connection, target)))
        found = medians(connection, target, tuple(METHODS), mechanism.beta, rounds)
    for label, asked in found.items():
        print(f"{target.name} {label:27} {asked['ms']} ms", flush=True)
        yield report("time", target, 0.8, label, mechanism, asked)


def _rate(target: Target, rounds: int) -> Iterator[Row]:
    """Sensitivity, noise and time against the sampling rate at epsilon 6.4 (figures 9 and 11)."""
    rated = target.name in RATED
    with target.connect() as connection:
        for mechanism in mechanisms(6.4, private(connection, target)):
            if mechanism.name == "laplace_published" or not (rated or mechanism.name == "laplace"):
                continue
            for label, asked in medians(
                connection, target, ("elastic", "residual"), mechanism.beta, rounds
            ).items():
                yield report("rate", target, 6.4, label, mechanism, asked) | {"rate": None}
            for rate in RATES if rated else FEW_RATES:
                connection.execute(f"set dp.sampling_rate = {rate}")
                found = medians(connection, target, SAMPLING, mechanism.beta, rounds)
                for label, asked in found.items():
                    yield report("rate", target, 6.4, label, mechanism, asked) | {"rate": rate}
    print(f"{target.name}: sampling rates done", flush=True)


def _group(path: Target, rounds: int) -> Iterator[Row]:
    """Estimate the largest group of one residual query against the rate (figure 10)."""
    target = Target("edge2 to edge5", path.data, path.dsn, GROUP)
    mechanism = next(mechanisms(6.4, 1))
    large = 100.0
    with target.connect() as connection:
        for label, asked in medians(connection, target, ("residual",), large, 1).items():
            yield report("group", target, 6.4, label, mechanism, asked) | {"rate": None}
        for rate in RATES:
            connection.execute(f"set dp.sampling_rate = {rate}")
            for label, asked in medians(connection, target, SAMPLING, large, rounds).items():
                yield report("group", target, 6.4, label, mechanism, asked) | {"rate": rate}


def _scale(target: Target, rounds: int) -> Iterator[Row]:
    """Noise and time against the scale of the data (figures 7 and 12)."""
    with target.connect() as connection:
        connection.execute(f"set dp.sampling_rate = {RATE}")
        mechanism = next(mechanisms(0.8, private(connection, target)))
        answer = {"truth": truth(connection, target)}
        found = medians(connection, target, tuple(METHODS), mechanism.beta, rounds)
    for label, asked in found.items():
        yield report("scale", target, 0.8, label, mechanism, asked) | answer
    print(f"{target.name} at {target.data}: done", flush=True)


if __name__ == "__main__":
    main()
