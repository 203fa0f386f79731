"""Random sessions: shapes, a way, questions and a difference between the twins are drawn from a seed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from tests.server.hostile import world
from tests.server.hostile.questions import HEAVY_ROWS, KINDS, SYNTHESES
from tests.server.hostile.shapes import SHAPES, STACKS, STEPS
from tests.server.hostile.trying import Pair, Trial, compare, deepest, difference
from tests.server.hostile.ways import PLAIN, WAYS


class Hunter:
    """Try random sessions on twins of each kind, and keep the differences."""

    def __init__(self, server: Any, seed: int, differences: Sequence[str]) -> None:
        self.server, self.differences = server, differences
        self.draw = random.Random(seed)
        self.opened = ExitStack()
        self.found: list[str] = []
        self.states: Counter[str] = Counter()
        self.tried = self.answered = 0

    def __enter__(self) -> Hunter:
        self.pairs = [Pair(self.opened.enter_context(world.twins(self.server, planted))) for planted in self.differences]  # fmt: skip
        for pair in self.pairs:
            self.opened.callback(pair.close)
        self.levels = [deepest(self.pairs[0], shape) for shape in STACKS]
        return self

    def __exit__(self, *failure: object) -> None:
        self.opened.close()

    def trial(self) -> Trial:
        """Draw the next trial."""
        draw = self.draw
        hostile = [(shape, self.step()) for shape in draw.sample(SHAPES, draw.choice((0, 1, 1, 2)))]
        if not hostile or draw.random() < 0.5:
            place = draw.randrange(len(STACKS))
            hostile.append((STACKS[place], self.step() * self.levels[place] // STEPS))
        questions = [draw.choice(HEAVY_ROWS if draw.random() < 0.6 else KINDS) for _ in range(draw.choice((1, 1, 2, 4)))]  # fmt: skip
        if draw.random() < 0.03:
            questions.append(draw.choice(SYNTHESES))
        way = draw.choice(WAYS) if draw.random() < 0.5 else PLAIN
        return Trial(tuple(hostile), tuple(questions), way)

    def step(self) -> float:
        """Draw a step, more often near the last one, where limits are."""
        draw = self.draw
        return draw.choice((STEPS, draw.uniform(0.9 * STEPS, STEPS), draw.uniform(0, STEPS)))

    def hunt(self) -> None:
        """Try one session, and lock or unlock the twins after each 40."""
        if self.tried % 40 == 0:
            for pair in self.pairs:
                pair.lock(self.draw.random() < 0.5)
        trial, place = self.trial(), self.draw.randrange(len(self.pairs))
        pair = self.pairs[place]
        first, second = pair.run(trial)
        self.tried += 1
        self.answered += "" in first.states()
        self.states.update(first.states())
        lost = "lost" in first.states() + second.states()
        if lost or compare(trial, first, second):
            told = difference(pair, trial)
            if told or lost:
                locked = "after dp.lockdown()" if pair.locked else "before dp.lockdown()"
                self.found.append(
                    f"{self.differences[place].strip()}\n{locked}: {told or trial.name}"
                )

    def summary(self) -> str:
        told = ", ".join(f"{n} {state or 'answered'}" for state, n in self.states.most_common())
        return f"{self.tried} sessions; questions: {told}; {len(self.found)} differences"
