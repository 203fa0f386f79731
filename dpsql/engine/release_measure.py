"""Measure a charged release in one snapshot, and write what was measured for the ledger.

Exact counts come in, noisy measurements go out (PRIVACY.md section 2).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.errors import NotAnswerable, ReleaseFailed

#: Numbers that the ledger keeps of one release: 32 MB before compression.
MOST_KEPT = 1 << 22

if TYPE_CHECKING:
    from dpsql.engine.progress import Progress
    from dpsql.engine.release import Admitted
    from dpsql.engine.release_price import Priced
    from dpsql.engine.services import Services
    from dpsql.statistics.tabulation import Marginals, Tabulation
    from dpsql.workload.matrix import Floats
    from dpsql.workload.mechanism import Mechanism
    from dpsql.workload.mechanism_aim import AimMechanism
    from dpsql.workload.residual_bases import Integers
    from dpsql.workload.supply import Choice, Gaussian


def measure(
    admitted: Admitted, priced: Priced, services: Services, progress: Progress
) -> list[Floats]:
    """Read the block once and measure every vector; exact numbers end here.

    The progress is told of measurements that are done, none of what is read for them.
    """
    from dpsql.statistics.tabulation import tabulate

    mechanism = priced.mechanism
    query = admitted.question.counted
    progress.budget(Fraction(0), mechanism.loss, mechanism.budget.order)

    def measured() -> list[Floats]:
        # a table that does not fit is read marginal by marginal, while they are measured
        table = tabulate(query, admitted.released.attributes, admitted.rows, services.database)
        return measure_table(mechanism, table, services, progress, exact=priced.delta == 0)

    relations = sorted({o.relation.oid for o in query.occurrences})
    return services.database.at_one_moment(relations, measured)


def measure_table(
    mechanism: Mechanism,
    table: Tabulation | Marginals,
    services: Services,
    progress: Progress,
    *,
    exact: bool = False,
) -> list[Floats]:
    """Measure every vector of a mechanism on counts that were read; ``exact`` noise is slow."""
    import numpy as np

    from dpsql.engine.release_noise import draw
    from dpsql.workload.marginals import attributes_of
    from dpsql.workload.mechanism_aim import AimMechanism

    order, whole, used = mechanism.budget.order, mechanism.loss, Fraction(0)
    if isinstance(mechanism, AimMechanism):
        return _measure_adaptively(mechanism, table, services, progress)
    progress.rounds(0, len(mechanism.measurements))
    measured = []
    exact_marginals = table.marginals([attributes_of(m.mask) for m in mechanism.measurements])
    for k, (measurement, exact_counts) in enumerate(
        zip(mechanism.measurements, exact_marginals, strict=True)
    ):
        noise = draw(services, order, measurement, exact=exact)
        measured.append(np.asarray(mechanism.measure(k, exact_counts, noise)))
        used += measurement.loss
        progress.budget(used, whole, order, done=k + 1)
    return measured


def _measure_adaptively(
    mechanism: AimMechanism,
    table: Tabulation | Marginals,
    services: Services,
    progress: Progress,
) -> list[Floats]:
    """Run AIM: its quote is the whole budget, however many rounds it takes (section 7).

    How many it has taken, and what they used, is post-processing of what they measured.
    """
    from dpsql.workload.marginals import attributes_of

    class Data:
        def batch(self, masks: Sequence[int]) -> dict[int, Integers]:
            found = table.marginals([attributes_of(mask) for mask in masks])
            return dict(zip(masks, found, strict=True))

    gaussian, choose_exactly = supply(services)
    before = Fraction(0)

    def tell(rounds: int, used: Fraction, budget: Fraction) -> None:
        nonlocal before
        # how many there will be is unknown: as many as what is left would buy of the last one
        expected = math.ceil((budget - used) / (used - before)) if rounds else None
        before = used
        progress.budget(used, budget, 2, done=rounds, expected=expected)

    return mechanism.run(Data(), gaussian, choose_exactly, tell)


def supply(services: Services) -> tuple[Gaussian, Choice]:
    """Return the noise and the choices of adaptive mechanisms (`dpsql.workload.supply`)."""
    from dpsql.core.mechanisms.exponential import choose
    from dpsql.core.wide import gathered
    from dpsql.engine.ticking import Ticking

    noise = Ticking(services.noise, services.database.tick)

    def gaussian(variance: Fraction, count: int) -> Integers:
        return gathered(noise.gaussians(variance, count), count)

    def choose_exactly(scores: Sequence[int], rate: Fraction) -> int:
        return choose(scores, rate, noise)

    return gaussian, choose_exactly


def dump(measured: Sequence[Floats], *, whole: bool = False) -> str:
    """Write measurements, which may leave the database, as the ledger keeps answers.

    Of very many only the table is kept, unless ``whole``.
    """
    import base64
    import zlib

    if not whole and sum(m.size for m in measured) > MOST_KEPT:
        return json.dumps({"measured": None})
    parts = [base64.b64encode(zlib.compress(m.tobytes(), 1)).decode() for m in measured]
    shapes = [list(m.shape) for m in measured]
    return json.dumps({"shapes": shapes, "measured": parts}, separators=(",", ":"))


def load(payload: str, mechanism: Mechanism) -> list[Floats]:
    """Read what `dump` wrote."""
    import base64
    import zlib

    import numpy as np

    raw = json.loads(payload)
    if raw["measured"] is None:
        raise NotAnswerable(
            "this workload was released before, and is too large to be kept beside its table",
            detail=f"What was measured is kept where it has at most {MOST_KEPT} numbers.",
            hint="Read the table that there is (dp.releases), or SET dp.fresh = on to measure"
            " again, which is charged.",
        )
    expected = len(mechanism.measurements)
    if expected and len(raw["measured"]) != expected:
        raise ReleaseFailed(
            "what is stored does not fit the mechanism",
            hint="SET dp.fresh = on measures again, and is charged.",
        )
    return [
        np.frombuffer(zlib.decompress(base64.b64decode(part)), dtype=np.float64).reshape(shape)
        for part, shape in zip(raw["measured"], raw["shapes"], strict=True)
    ]
