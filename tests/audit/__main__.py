"""``make audit``: claimed and measured epsilon of every mechanism, through the server.

Each draws on two neighbours, as the code is and with its mutant.  A measured epsilon is a lower bound
that holds with probability `1 - ALARM`; above the claim it refutes the code, and a mutant that it does
not refute was not caught.  The noise is the operating system's; the seed divides draws only.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from dpsql.client.build import prepare as build
from dpsql.client.layout import Layout
from tests.audit.cases import MOST_STATEMENTS, every
from tests.audit.measuring import measure
from tests.conftest import start_server

ALARM = 1e-6
DRAWS = 3000


def say(line: str) -> None:
    """Write a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Measure all, or some; returns 1 if a claim is refuted or a mutant is not."""
    parser = argparse.ArgumentParser(prog="make audit", description=__doc__)
    parser.add_argument("--draws", type=int, default=DRAWS, help="of each, on each neighbour")
    parser.add_argument("--json", type=Path, help="a file that rows are added to")
    parser.add_argument("--only", default="", help="parts of the names, divided by |")
    options = parser.parse_args()
    build(Layout.discover())
    server = start_server()
    wrong = 0
    try:
        say(f"{'claimed':>8} {'measured':>8} {'mutant':>8}  neighbours differ in; what is drawn")
        for audited in every():
            if not any(part in audited.name for part in options.only.split("|")):
                continue
            begun = time.monotonic()
            statements = min(round(options.draws * audited.share / audited.copies), MOST_STATEMENTS)
            code = measure(server, audited, "", statements, ALARM)
            mutant = measure(server, audited, audited.mutant, audited.mutant_statements, ALARM)
            verdict = ""
            if code.epsilon > audited.claim:
                verdict += "  THE CLAIM IS REFUTED"
            if mutant.epsilon <= audited.claim:
                verdict += "  THE MUTANT IS NOT CAUGHT"
            wrong += bool(verdict)
            say(
                f"{audited.claim:8.3g} {code.epsilon:8.3g} {mutant.epsilon:8.3g}"
                f"  {audited.neighbours:4} {audited.name}{verdict}"
            )
            row = {
                "mechanism": audited.name,
                "neighbours": audited.neighbours,
                "claimed": audited.claim,
                "delta": audited.delta,
                "measured": round(code.epsilon, 4),
                "event": code.event,
                "mutant": round(mutant.epsilon, 4),
                "draws": statements * audited.copies,
                "seconds": round(time.monotonic() - begun, 1),
            }
            if options.json:
                with options.json.open("a") as target:
                    target.write(json.dumps(row) + "\n")
    finally:
        server.remove()
    say("all claims hold, all mutants are caught" if not wrong else f"{wrong} failures")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
