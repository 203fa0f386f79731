"""What every mechanism would cost and how far it would be off; touches no data, costs nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dpsql.engine.progress import Command, Progress
from dpsql.engine.release import Terms, admit, choose
from dpsql.engine.release_domain import Released
from dpsql.engine.request import Settings

if TYPE_CHECKING:
    from dpsql.engine.services import Services


def plan(text: str, terms: Terms, own: Settings, services: Services) -> list[list[str | None]]:
    """Return one row for each mechanism and noise, the best first.

    Columns: mechanism, noise, epsilon, delta, rho, root mean squared error of a released number,
    its ratio to the best, numbers that are released, whether it would be chosen, and why not.
    """
    settings = terms.settings(own)
    admitted = admit(text, terms, settings, services)
    progress = Progress.of(services.database, Command.PLAN, admitted.question.counted)
    found, refused = choose(
        admitted, replace(terms, mechanism="auto"), settings, services, progress, every=True
    )
    progress.end()
    cells = str(admitted.released.cells)
    chosen = next((p for p in found if terms.mechanism in ("auto", p.mechanism.name)), None)
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
                f"{rmse:.6g}",
                f"{rmse / found[0].mechanism.rmse:.4g}",
                cells,
                "true" if priced is chosen else "false",
                _about(admitted.released, admitted.rows),
            ]
        )
    for name, noise, why in refused:
        rows.append([name, noise, None, None, None, None, None, cells, "false", why])
    return rows


def _about(released: Released, rows: int) -> str | None:
    domain = " x ".join(str(n) for n in released.workload.domain.sizes)
    units = f"; of each privacy unit {rows} rows count" if rows > 1 else ""
    return f"domain {domain}{units}"


def _number(value: object) -> str:
    return f"{float(value):.12g}"  # type: ignore[arg-type]
