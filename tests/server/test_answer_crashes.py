"""Kills at random moments under concurrent analysts: every answer has its charge, and only one."""

from __future__ import annotations

import json
import random
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import psycopg

from tests.server.conftest import declare
from tests.server.disturbance import QUESTIONS, Askers, Disturbance, Sighting, disturb
from tests.server.waiting import wait_until

# Four counts a question, with noise of a scale above 10^5 each: no two computations agree
# (probability below 10^-15 for thousands of answers), so an answer names its computation.
EPSILON = 0.00001
COUNTS = ("*", "c_born", "c_kind", "p_amount")
# What is lost in a crash was not flushed yet: the server does so within 3 * wal_writer_delay (0.6 s).
FLUSHED = 10.0
#: A client may write down so much later what it was told before a crash.
LATE = 5.0
# Every stored answer with the number of its charge; lost in a crash only together with the answer.
LOG = """
create table public.stored (spend bigint primary key, payload text not null);
create function public.store() returns trigger language plpgsql security definer as $$
begin
    if new.payload is not null then
        insert into public.stored values (new.spend, new.payload) on conflict do nothing;
    end if;
    return null;
end $$;
create trigger store after update of payload on dp.answer
  for each row execute function public.store();
"""


class Analysts(Askers):
    """Analysts that count purchases above a number which names the question."""

    def ask(self, connection: psycopg.Connection[Any], question: str, choice: random.Random) -> str:
        connection.execute(f"set dp.epsilon = {EPSILON}")
        counts = ", ".join(f"dp_count({c})" for c in COUNTS)
        row = connection.execute(
            f"select {counts} from purchase join client on p_client = c_id"
            f" where p_id > {1000 + int(question[1:])}"
        ).fetchone()
        return str(row)


@dataclass(frozen=True)
class Spend:
    """A row of the ledger; ``answer`` is what was stored for it, if that was not lost."""

    id: int
    at: float
    role: str
    question: str
    source: int
    computed: bool
    state: str
    answer: str | None


def spends(database: Any) -> list[Spend]:
    rows = database.sql(
        "select s.id, extract(epoch from s.at)::float8, s.role_name::text, s.question, s.source,"
        " cardinality(s.roots) > 0, s.state, l.payload"
        " from dp.spend s left join public.stored l on l.spend = s.id order by s.at"
    )
    found = []
    for number, at, role, text, source, computed, state, payload in rows:
        match = re.search(r"p_id > \(?'?(\d+)", text)
        assert match is not None, text
        answer = None
        if payload is not None:
            answer = str(tuple(column[0] for column in json.loads(payload)["values"]))
        question = f"q{int(match[1]) - 1000}"
        found.append(Spend(number, at, role, question, source, computed, state, answer))
    return found


def check_answers_have_charges(
    seen: list[Sighting], ledger: list[Spend], crashes: list[Disturbance]
) -> None:
    """Each answer that somebody saw belongs to a computation that was charged before."""
    by_answer = {(s.question, s.answer): s for s in ledger if s.answer is not None}
    assert len(by_answer) == sum(s.answer is not None for s in ledger), "answers are distinct"
    paid = {(s.role, s.source): s.at for s in reversed(ledger)}
    lost: dict[str, dict[str, float]] = defaultdict(dict)
    for sighting in sorted(seen, key=lambda s: s.told):
        spend = by_answer.get((sighting.question, sighting.answer))
        if spend is not None:
            # its computation was charged, and this role was charged for seeing it
            assert spend.computed
            assert spend.at <= sighting.told
            assert paid[sighting.role, spend.id] <= sighting.told
        else:
            lost[sighting.question].setdefault(sighting.answer, sighting.told)
            assert any(
                s.role == sighting.role
                and s.question == sighting.question
                and s.at <= sighting.told
                for s in ledger
            )
    for question, answers in lost.items():
        # Stored but not flushed before a crash; each has an unanswered charge of its own.
        charges = [s.at for s in ledger if s.question == question and s.computed and not s.answer]
        for number, told in enumerate(sorted(answers.values()), 1):
            assert sum(at <= told for at in charges) >= number
            assert any(told - LATE <= c.after and c.before <= told + FLUSHED for c in crashes)
    print(f"{len(seen)} sightings, {len(ledger)} spends, {sum(map(len, lost.values()))} lost")  # noqa: T201


def check_charges_have_reasons(
    ledger: list[Spend], done: list[Disturbance], crashes: list[Disturbance]
) -> None:
    """Nobody pays twice for one answer; a question is computed again for a reason only."""
    shown = [(s.role, s.source) for s in ledger]
    assert len(shown) == len(set(shown)), "a role pays once for one computation"
    for question in {s.question for s in ledger}:
        computed = [s for s in ledger if s.question == question and s.computed]
        for first, second in pairwise(computed):
            # its answer was forgotten, lost in a crash, or never came
            assert first.answer is None or any(
                d.before <= second.at and first.at <= d.after
                for d in done
                if d.kind == "forget" or d in crashes
            )
    unanswered = [s for s in ledger if s.computed and s.answer is None]
    alone = [
        s
        for s in unanswered
        if not any(s.at <= c.after and c.before <= s.at + FLUSHED for c in crashes)
    ]
    # Of those that no crash explains each had an asker, or its ledger, that was told to stop.
    assert len(alone) <= sum(d.kind in ("terminate", "cancel") for d in done)


def test_deaths_under_load_leave_every_answer_with_its_charge(
    make_server: Callable[..., Any],
) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")  # noqa: T201
    server = make_server()
    database = declare(server.create_database())
    database.sql(LOG)
    with database.connect(user="owner1") as owner:
        # deaths are failures, which would stop the role
        owner.execute("select dp.set_failure_limit('client', 1000)")
        owner.execute("select dp.set_failure_limit('purchase', 1000)")
        owner.execute(f"select dp.grant_budget('bob', epsilon => {8 * EPSILON}, delta => 1e-5)")
    database.close()
    with Analysts(database, seed) as analysts:
        done = disturb(server, database, random.Random(seed), pace=0.7)
        # a busy machine may have answered little by then
        wait_until(lambda: len({s.answer for s in list(analysts.seen)}) >= QUESTIONS)
        wait_until(lambda: "PD001" in analysts.refusals)
    crashes = [d for d in done if d.kind.startswith("kill")]
    ledger = spends(database)
    assert len({s.answer for s in analysts.seen}) >= QUESTIONS
    check_answers_have_charges(analysts.seen, ledger, crashes)
    check_charges_have_reasons(ledger, done, crashes)
    rows = database.sql(
        "select role, epsilon_limit, epsilon_spent, epsilon_remaining from dp.budgets"
        " where role in ('alice', 'bob')"
    )
    for role, budget, spent, remaining in rows:
        booked = database.sql("select sum(epsilon) from dp.ledger where role = %s", role)[0][0]
        assert remaining >= 0
        assert spent == booked <= budget
    assert "PD001" in analysts.refusals
