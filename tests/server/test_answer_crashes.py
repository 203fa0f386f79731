"""Kills at random moments under concurrent analysts: no answer without its charge."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import psycopg

from tests.server.conftest import DECLARE, SHOP
from tests.server.disturbance import QUESTIONS, Askers, disturb


class Analysts(Askers):
    """Analysts that count purchases above a number which names the question."""

    def ask(self, connection: psycopg.Connection[Any], question: str, choice: random.Random) -> str:
        row = connection.execute(
            f"select dp_count(*) from purchase join client on p_client = c_id"
            f" where p_id > {1000 + int(question[1:])}"
        ).fetchone()
        return str(row and row[0])


def test_deaths_under_load_leave_every_answer_charged(make_server: Callable[..., Any]) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")  # noqa: T201
    server = make_server()
    database = server.create_database()
    database.sql(SHOP)
    with database.connect(user="owner1") as owner:
        for statement in DECLARE.strip().split("\n"):
            owner.execute(statement)
        owner.execute("select dp.grant_budget('bob', epsilon => 8, delta => 1e-5)")
    database.close()
    with Analysts(database, seed) as analysts:
        deaths = disturb(server, database, random.Random(seed), pace=0.7)
    seen = sum(len(values) for values in analysts.answers.values())
    assert seen >= QUESTIONS
    charges: Counter[str] = Counter()
    payers = set()
    for role, text, paid_roots in database.sql(
        "select role::text, question, cardinality(relations) from dp.ledger"
    ):
        number = re.search(r"p_id > \(?'?(\d+)", text)
        assert number is not None, text
        question = f"q{int(number[1]) - 1000}"
        payers.add((role, question))
        charges[question] += paid_roots > 0
    for question, values in analysts.answers.items():
        # Two draws can be equal, so there may be fewer values than charges, never more.
        assert len(values) <= charges[question]
        assert charges[question] <= 1 + 2 * deaths
    for role, questions in analysts.paid.items():
        assert {(role, question) for question in questions} <= payers
    rows = database.sql(
        "select role, epsilon_limit, epsilon_spent, epsilon_remaining from dp.budgets"
        " where role in ('alice', 'bob')"
    )
    for role, budget, spent, remaining in rows:
        booked = database.sql("select sum(epsilon) from dp.ledger where role = %s", role)[0][0]
        assert remaining >= 0
        assert spent == booked <= budget
    assert "PD001" in analysts.refusals
