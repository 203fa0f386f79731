"""Comments on the table of a release, which psql and BI tools show beside it: public facts."""

from __future__ import annotations

import math
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from dpsql.engine import ddl
from dpsql.engine.release_table import columns_of, is_key, several, table_name
from dpsql.relation import show_name

if TYPE_CHECKING:
    from dpsql.engine.release import Outcome
    from dpsql.engine.services import Services
    from dpsql.query.asked import WorkloadQuestion

_FORMS = {
    "levels": "level of the group key",
    "prefix": "the rows up to this level count",
}


#: What post-processing makes of noisy counts.
_MADE = {
    "non_negative": "numbers that are not negative and agree with each other",
    "integral": "whole numbers that are not negative and agree with each other",
    "pgm": "numbers of a graphical model, which are not negative and agree with each other",
}


def comment(name: str, outcome: Outcome, services: Services) -> None:
    """Say of a released table how it was made, and of its columns what is in them."""
    table = table_name(name)
    measured = outcome.measured_at or datetime.now(timezone.utc)
    when = measured.astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M")
    texts = {None: _of_table(outcome, when), **_of_columns(outcome)}
    for column, text in texts.items():
        services.database.execute(
            ddl.comment_on_table(table, text)
            if column is None
            else ddl.comment_on_column(table, column, text)
        )


def _of_table(outcome: Outcome, when: str) -> str:
    priced, admitted = outcome.priced, outcome.admitted
    units = f"; of each privacy unit {admitted.rows} rows count" if admitted.rows > 1 else ""
    return (
        f"differentially private release of {when} UTC: {priced.mechanism.name} with"
        f" {priced.noise} noise, epsilon {_up(float(priced.epsilon))}, delta"
        f" {_up(float(priced.delta))}{units}; reading it costs nothing (dp.releases)"
    )


def _of_columns(outcome: Outcome) -> dict[str | None, str]:
    question, after = outcome.admitted.question, outcome.postprocess
    keys = [c.name for n, c in enumerate(question.columns) if is_key(question, n)]
    found: dict[str | None, str] = {}
    if several(question):
        found["query"] = "which query of the union, from 1"
    found["grouping"] = (
        f"GROUPING({', '.join(map(show_name, keys))}): a bit for each key that is summed over, the"
        " last key lowest"
    )
    for n, names in enumerate(columns_of(question)):
        if not is_key(question, n):
            found[names[0]] = "constant of the statement"
        elif len(names) == 2:
            found[names[0]] = "first level of the range; NULL where it is summed over"
            found[names[1]] = "last level of the range; NULL where it is summed over"
        else:
            found[names[0]] = _of_key(question, n)
    found["value"] = "noisy count: it can be negative or a fraction"
    found["standard_error"] = "standard deviation of the noise in value, exactly"
    if outcome.priced.mechanism.name == "aim_pgm":
        found["value"] = f"count, in {_MADE['pgm']}"
    if after != "none":
        found["value"] = f"count, post-processed to {_MADE[after]}"
        found["standard_error"] = "standard deviation of the noise before that"
    if math.isnan(outcome.priced.mechanism.error):
        found["standard_error"] += "; NULL where it is not known"
    return found


def _of_key(question: WorkloadQuestion, n: int) -> str:
    forms = {
        asked.parts[shown].form.kind
        for asked in question.sets
        if isinstance(shown := asked.shown[n], int)
    }
    told = " or ".join(_FORMS[kind] for kind in sorted(forms) if kind in _FORMS)
    return f'{told}; NULL where "grouping" says that it is summed over'


def _up(amount: float) -> str:
    """Write an amount with six digits, not below it."""
    if not amount:
        return "0"
    near = float(f"{amount:.5e}")
    unit = 10.0 ** (math.floor(math.log10(amount)) - 5)
    return f"{near if near >= amount else near + unit:.6g}"
