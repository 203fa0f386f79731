"""Random sessions: shapes, a way, questions and a difference between the twins are drawn from a seed."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import ExitStack
from typing import Any

from tests.server.hostile import world
from tests.server.hostile.questions import HEAVY_ROWS, KINDS, SYNTHESIS
from tests.server.hostile.shapes import SHAPES, STACKS, STEPS
from tests.server.hostile.trying import Pair, Trial, compare, deepest, difference
from tests.server.hostile.ways import PLAIN, WAYS


class Hunter:
    """Try random sessions on twins of each kind, and keep the differences."""

    def __init__(self, server: Any, seed: int) -> None:
        self.server = server
        self.draw = random.Random(seed)
        self.opened = ExitStack()
        self.found: list[str] = []
        self.states: Counter[str] = Counter()
        self.tried = self.answered = 0

    def __enter__(self) -> Hunter:
        self.pairs = [Pair(self.opened.enter_context(world.twins(self.server, planted))) for planted in world.DIFFERENCES]  # fmt: skip
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
            questions.append(SYNTHESIS)
        way = draw.choice(WAYS) if draw.random() < 0.5 else PLAIN
        return Trial(tuple(hostile), tuple(questions), way)

    def step(self) -> float:
        """Draw a step, more often near the last one, where limits are."""
        draw = self.draw
        return draw.choice((STEPS, draw.uniform(0.9 * STEPS, STEPS), draw.uniform(0, STEPS)))

    def hunt(self) -> None:
        """Try one session."""
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
                self.found.append(f"{world.DIFFERENCES[place].strip()}\n{told or trial.name}")

    def summary(self) -> str:
        told = ", ".join(f"{n} {state or 'answered'}" for state, n in self.states.most_common())
        return f"{self.tried} sessions; questions: {told}; {len(self.found)} differences"
