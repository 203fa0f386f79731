"""An answer that was charged reaches the asker even if the ledger goes away before it is stored."""

from __future__ import annotations

from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest

from dpsql.core.composition import Zcdp
from dpsql.engine import answer
from dpsql.engine.payload import Payload
from dpsql.engine.request import Settings
from dpsql.engine.services import Services
from dpsql.errors import DeclarationsChanged, LedgerUnavailable, ReleaseFailed
from dpsql.ledger.model import Charged
from dpsql.model import Guarantee

PAYLOAD = Payload([()], [[7]], [None], "laplace", "residual", "proved")
QUOTE = SimpleNamespace(
    reads_private=True,
    zcdp=Zcdp(Fraction(1), Fraction(0)),
    guarantee=Guarantee(Fraction(1), Fraction(0)),
    question=SimpleNamespace(
        roots=(1,), canonical="q", loose=(), unlisted=(), post_sql="", group_keys=(), vectors=()
    ),
    mechanism="laplace",
    method="residual",
    label="proved",
    aggregates=(),
    shares=(),
    groups=[()],
)
PREPARED = SimpleNamespace(text="select", fingerprint="f", relations=(16384,))
SETTINGS = Settings()
ROLE = SimpleNamespace(oid=1, name="alice")


class Cancelled(Exception):
    """What the asker ends a question by."""


class Ledger:
    """Charges, then cannot be reached."""

    def __init__(self) -> None:
        self.failed: list[bool] = []

    def open(self, _charge: object) -> Charged:
        return Charged(1)

    def finish(self, _charged: Charged, _payload: str) -> None:
        raise LedgerUnavailable("gone")

    def fail(self, _charged: Charged, *, counts: bool) -> None:
        self.failed.append(counts)


#: The ledger of the last run, which may have raised.
LEDGERS: list[Ledger] = [Ledger()]


def run(
    monkeypatch: pytest.MonkeyPatch, confirm: Any, compute: Any = lambda *_: PAYLOAD
) -> tuple[Any, Ledger, list[str]]:
    said: list[str] = []
    ledger = LEDGERS[0] = Ledger()
    monkeypatch.setattr(answer, "compute", compute)
    monkeypatch.setattr(answer, "rehearse", lambda *_: None)
    database: Any = SimpleNamespace(meet=lambda *_, **__: None)
    noise: Any = None
    services = Services(
        database=database,
        catalog=SimpleNamespace(confirm=confirm, written=lambda _: []),
        ledger=ledger,  # type: ignore[arg-type]
        noise=noise,
        warn=lambda message, _detail, _hint: said.append(message),
        note=lambda *_: None,
        is_public=lambda error: isinstance(error, Cancelled),
    )
    payload = answer._debit_and_run(QUOTE, PREPARED, b"", ROLE, SETTINGS, services)  # type: ignore[arg-type]
    return payload, ledger, said


def test_the_answer_is_given_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    payload, ledger, said = run(monkeypatch, lambda *_: None)
    assert payload is PAYLOAD
    assert ledger.failed == []
    assert said == ["the answer could not be stored"]


def test_an_answer_about_something_else_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    def changed(*_: object) -> None:
        raise DeclarationsChanged("swapped")

    with pytest.raises(ReleaseFailed, match="changed while it was read"):
        run(monkeypatch, changed)
    # which public facts decide
    assert LEDGERS[0].failed == [False]


@pytest.mark.parametrize(
    ("error", "counts"),
    [(Cancelled(), False), (MemoryError(), True), (ReleaseFailed("x"), True), (SystemExit(), True)],
)
def test_a_failure_counts_unless_the_asker_ended_it(
    error: BaseException, counts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    with pytest.raises(type(error)):
        run(monkeypatch, lambda *_: None, fail)
    assert LEDGERS[0].failed == [counts]
