"""What every mechanism would cost and how far it would be off; touches no data, costs nothing."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dpsql.engine.progress import Command, Progress
from dpsql.engine.release import admit
from dpsql.engine.release_price import choose, reason
from dpsql.engine.release_terms import Terms
from dpsql.engine.request import Settings
from dpsql.errors import InvalidParameter

if TYPE_CHECKING:
    from dpsql.engine.release import Admitted
    from dpsql.engine.release_price import Priced
    from dpsql.engine.services import Services

_UNKNOWN = "; its expected error is not known, since it depends on the data"


def plan(text: str, terms: Terms, own: Settings, services: Services) -> list[list[str | None]]:
    """Return one row for each mechanism and noise, the best first.

    Columns: mechanism, noise, epsilon, delta, rho, root mean squared error of a released number,
    its ratio to the best, numbers that are released, whether it would be chosen, and why not.
    """
    settings = terms.settings(own)
    admitted = admit(text, terms, settings, services)
    progress = Progress.of(services.database, Command.PLAN, admitted.question.counted)
    found, refused = choose(admitted, terms, settings, services, progress, every=True)
    progress.end()
    cells = str(admitted.released.cells)
    # the one that dp.release takes; it is refused there if it cannot be post-processed
    chosen = next((p for p in found if p.taken), None)
    if chosen and terms.postprocess != "none" and _unprocessed(chosen, terms.postprocess):
        chosen = None
    best = found[0].mechanism.rmse if found else math.nan
    rows: list[list[str | None]] = []
    for priced in found:
        rmse = priced.mechanism.rmse
        rows.append(
            [
                priced.mechanism.name,
                priced.noise,
                _number(priced.epsilon),
                _number(priced.delta),
                _number(priced.rho),
                None if math.isnan(rmse) else f"{rmse:.6g}",
                None if math.isnan(rmse) else f"{rmse / best:.4g}",
                cells,
                "true" if priced is chosen else "false",
                _about(priced, admitted, terms.postprocess),
            ]
        )
    for name, noise, why in refused:
        rows.append([name, noise, None, None, None, None, None, cells, "false", why])
    return rows


def _about(priced: Priced, admitted: Admitted, postprocess: str) -> str:
    domain = " x ".join(str(n) for n in admitted.released.workload.domain.sizes)
    units = f"; of each privacy unit {admitted.rows} rows count" if admitted.rows > 1 else ""
    unknown = "" if not math.isnan(priced.mechanism.error) else _UNKNOWN
    return f"domain {domain}{units}{unknown}{_made(priced, postprocess)}"


def _made(priced: Priced, postprocess: str) -> str:
    """Say what post-processing makes of the error, or why it cannot be had."""
    if postprocess == "none":
        return ""
    if why := _unprocessed(priced, postprocess):
        return f"; no postprocess => '{postprocess}': {why}"
    return f"; rmse is before postprocess => '{postprocess}', which is free"


def _unprocessed(priced: Priced, postprocess: str) -> str | None:
    from dpsql.workload.postprocessed import require_postprocessing

    try:
        require_postprocessing(priced.mechanism, postprocess)
    except InvalidParameter as error:
        return reason(error)
    return None


def _number(value: object) -> str:
    return f"{float(value):.12g}"  # type: ignore[arg-type]
