"""Random hostile sessions show the same on twin databases of which only one has an expensive row.

`make test` tries a few; ``HOSTILE_SECONDS=3600`` tries combinations for an hour, as `make hunt` does,
and ``HOSTILE_SEED=n`` repeats a run.
"""

from __future__ import annotations

import os
import random
import time
from typing import Any

from tests.server.hostile import world
from tests.server.hostile.randomly import Hunter

#: Trials of `make test`, and the seconds of `make hunt`.
TRIALS = 12
SECONDS = float(os.environ.get("HOSTILE_SECONDS", "0"))
SEED = os.environ.get("HOSTILE_SEED", "2026")


def test_random_sessions_tell_nothing(small: Any) -> None:
    seed = random.SystemRandom().randrange(10**9) if SEED == "random" else int(SEED)
    print(f"HOSTILE_SEED={seed}")  # noqa: T201
    end = time.monotonic() + SECONDS
    with Hunter(small, seed, world.DIFFERENCES if SECONDS else world.DIFFERENCES[1::2]) as hunter:
        while time.monotonic() < end if SECONDS else hunter.tried < TRIALS:
            hunter.hunt()
        print(hunter.summary())  # noqa: T201
        assert not hunter.found, f"HOSTILE_SEED={seed}\n" + "\n\n".join(hunter.found[:20])
        assert hunter.answered > hunter.tried / 4
