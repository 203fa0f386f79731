"""The evaluation of "Sensitivity estimation for differentially private query processing", again.

``python -m bench.sensitivity [--parts epsilon,time,rate,group,scale] [--sf 0.1]
[--scales 0.01,0.1,1] [--queries Q1,Q4] [--rounds 5] [--repeat 5]``, on the cluster
that ``make up`` started.  Writes SVG figures and, last, one JSON line.
``noise_scale`` is the scale of the noise that a mechanism adds at this sensitivity (of
``calibrated``, which draws it, the median), ``median_error`` the median of the absolute noise,
``ms`` the time of the sensitivity alone (the paper's includes the answer); ``null`` where a method
refuses, which ``why`` explains.
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
    laplaces,
    mechanisms,
    medians,
    middle,
    private,
    report,
    targets,
    truth,
)
from bench.queries import TPCH
from bench.walking import estimated, largest

EPSILONS = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8)
RATES = (1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3)
#: The sampling rate of all parts but ``rate``.
RATE = 1e-4
#: The figures of rates are about these; of the other queries, three rates under one mechanism.
RATED = ("Q1", "Q4")
FEW_RATES = (1e-5, 1e-4, 1e-3)
#: Of sampling, under the mechanisms that are not Laplace's.
FEW_EPSILONS = (0.1, 0.8, 6.4)
#: A method that takes longer is not asked for every epsilon and mechanism.
SLOW_MS = 10_000
NOT_AGAIN: Row = {"sensitivity": None, "ms": None, "why": f"takes more than {SLOW_MS // 1000} s"}


def main() -> None:
    """Measure, draw and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", default="epsilon,time,rate,group,scale")
    parser.add_argument("--sf", default="0.1", help="TPC-H scale factor of all parts but scale")
    parser.add_argument("--scales", default="0.01,0.05,0.1,0.5,1", help="those of part scale")
    parser.add_argument("--queries", default="Q1,Q2,Q3,Q4,Q5,Q6,Q7,Q8")
    parser.add_argument("--rounds", type=int, default=5, help="of part time")
    parser.add_argument("--repeat", type=int, default=5, help="measurements of the other parts")
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
                yield from _rate(target, arguments.repeat)
            if "group" in parts and target.name == "Q4":
                yield from _group(target, arguments.repeat)
    if "scale" in parts:
        for scale in arguments.scales.split(","):
            for target in targets([n for n in wanted if n in TPCH], scale):
                yield from _scale(target, arguments.repeat)


def _epsilon(target: Target) -> Iterator[Row]:
    """Noise against epsilon (figures 5 and 6)."""
    with target.connect() as connection:
        connection.execute(f"set dp.sampling_rate = {RATE}")
        answer = {"truth": truth(connection, target)}
        number = private(connection, target)
        given_up: dict[str, Row] = {}
        for label in METHODS:
            if label.endswith(("filtered", "_stored")) or label == "sketch_keys":
                continue
            for epsilon in EPSILONS:
                for mechanism in mechanisms(epsilon, number, label):
                    if label in SAMPLING and not _walks(mechanism.name, epsilon):
                        continue
                    asked = given_up.get(label) or ask(connection, target, label, mechanism.beta)
                    if asked["ms"] is None:
                        given_up[label] = asked
                    elif asked["ms"] > SLOW_MS:
                        given_up[label] = NOT_AGAIN
                    yield report("epsilon", target, epsilon, label, mechanism, asked) | answer
        print(f"{target.name}: noise against epsilon done", flush=True)


def _walks(mechanism: str, epsilon: float) -> bool:
    """Whether sampling is measured here: each of its points is a run of its own."""
    return mechanism == "laplace" or (
        mechanism in ("cauchy", "calibrated") and epsilon in FEW_EPSILONS
    )


def _time(target: Target, rounds: int) -> Iterator[Row]:
    """Time of the sensitivity per query (figure 8)."""
    with target.connect() as connection:
        connection.execute(f"set dp.sampling_rate = {RATE}")
        chosen = laplaces(0.8, private(connection, target), METHODS)
        betas = {label: mechanism.beta for label, mechanism in chosen.items()}
        found = medians(connection, target, betas, rounds)
    for label, asked in found.items():
        print(f"{target.name} {label:27} {asked['ms']} ms", flush=True)
        yield report("time", target, 0.8, label, chosen[label], asked)


def _rate(target: Target, rounds: int) -> Iterator[Row]:
    """Sensitivity, noise and time against the sampling rate at epsilon 6.4 (figures 9 and 11)."""
    rated = target.name in RATED
    names = ("laplace", "cauchy") if rated else ("laplace",)
    labels = ("elastic", "residual", *SAMPLING)
    with target.connect() as connection:
        number = private(connection, target)
        for name in names:
            chosen = {
                label: next(m for m in mechanisms(6.4, number, label) if m.name == name)
                for label in labels
            }
            betas = {label: mechanism.beta for label, mechanism in chosen.items()}
            counted = {label: betas[label] for label in ("elastic", "residual")}
            for label, asked in medians(connection, target, counted, rounds).items():
                yield report("rate", target, 6.4, label, chosen[label], asked) | {"rate": None}
            for rate in RATES if rated and name == "laplace" else FEW_RATES:
                connection.execute(f"set dp.sampling_rate = {rate}")
                walked = {label: betas[label] for label in SAMPLING}
                for label, asked in medians(connection, target, walked, rounds).items():
                    yield report("rate", target, 6.4, label, chosen[label], asked) | {"rate": rate}
    print(f"{target.name}: sampling rates done", flush=True)


def _group(target: Target, rounds: int) -> Iterator[Row]:
    """Estimate the largest group of one residual query against the rate (figure 10)."""
    row = {"part": "group", "query": "edge2 to edge5", "data": target.data}
    with target.connect() as connection:
        yield row | {"method": "residual", "rate": None} | largest(connection)
        for rate in RATES:
            for label in SAMPLING:
                method = METHODS[label]
                asked = [
                    estimated(connection, method.name, rate, method.filtered) for _ in range(rounds)
                ]
                yield row | {"method": label, "rate": rate} | middle(asked)
    print("largest group: sampling rates done", flush=True)


def _scale(target: Target, rounds: int) -> Iterator[Row]:
    """Noise and time against the scale of the data (figures 7 and 12)."""
    with target.connect() as connection:
        connection.execute(f"set dp.sampling_rate = {RATE}")
        chosen = laplaces(0.8, private(connection, target), METHODS)
        answer = {"truth": truth(connection, target)}
        betas = {label: mechanism.beta for label, mechanism in chosen.items()}
        found = medians(connection, target, betas, rounds)
    for label, asked in found.items():
        yield report("scale", target, 0.8, label, chosen[label], asked) | answer
    print(f"{target.name} at {target.data}: done", flush=True)


if __name__ == "__main__":
    main()
