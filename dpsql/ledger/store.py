"""The ledger in the database (PRIVACY.md section 7)."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone
from fractions import Fraction

from dpsql.errors import DpsqlError, LedgerUnavailable
from dpsql.ledger.amounts import amount_text
from dpsql.ledger.model import Account, Cap, Charge, Charged, Hit, Outlook
from dpsql.ledger.refusals import outlook, refusal, standby, unavailable
from dpsql.ledger.transactions import Row, StatementFailed, Transactions

_PEEK = """
select spend_id, payload, (extract(epoch from taken_at) * 1000000)::bigint
  from dp.ledger_peek($1::oid, $2::bytea)
"""
_OPEN = """
select status, spend_id, payload, (extract(epoch from taken_at) * 1000000)::bigint,
       budget_loss, budget_delta, spent_loss, spent_delta, composition,
       budget_window::text, (extract(epoch from window_end) * 1000000)::bigint,
       (select format('%I.%I', r.schema_name, r.relation_name) from dp.root as r
         where r.id = root and status in ('exceeded_root', 'stopped', 'stopped_all')),
       case when status = 'exceeded_root' then dp.ledger_exhausted(root) end,
       (select case status when 'stopped' then r.failure_limit else r.failure_limit_in_all end
          from dp.root as r where r.id = root and status in ('stopped', 'stopped_all'))
  from dp.ledger_open($1::oid, $2::integer[], $3::numeric, $4::numeric, $5::numeric, $6::numeric,
                      $7::bytea, $8::bytea, $9::text, $10::text, $11::text, $12::text,
                      $13::boolean, $14::timestamptz, $15::oid[], $16::bytea, $17::bigint,
                      $18::jsonb)
"""
_OUTLOOK = """
select status, null, payload, null,
       budget_loss, budget_delta, spent_loss, spent_delta, composition,
       budget_window::text, (extract(epoch from window_end) * 1000000)::bigint,
       (select format('%I.%I', r.schema_name, r.relation_name) from dp.root as r
         where r.id = root and status in ('exceeded_root', 'stopped', 'stopped_all')),
       case when status = 'exceeded_root' then dp.ledger_exhausted(root) end,
       (select case status when 'stopped' then r.failure_limit else r.failure_limit_in_all end
          from dp.root as r where r.id = root and status in ('stopped', 'stopped_all'))
  from dp.ledger_outlook($1::oid, $2::integer[], $3::numeric, $4::numeric, $5::numeric,
                         $6::numeric, $7::bytea, $8::boolean, $9::jsonb)
"""
_FINISH = """
select (extract(epoch from dp.ledger_finish($1::bigint, $2::text)) * 1000000)::bigint
"""
_FAIL = "select dp.ledger_fail($1::bigint, $2::boolean)"
_NO_FAILURE = "select dp.ledger_take_from_failures($1::bigint)"
_ENDED = "select dp.ledger_end($1::bigint, $2::text)"
_PURGE = "select purged, last_key from dp.ledger_purge($1::bytea)"
_IN_RECOVERY = ("25006", "55000")  # read_only_sql_transaction, object_not_in_prerequisite_state
_WAITED = {
    "pending": "Another session has been computing this answer for too long.",
    "crowded": "Other sessions of the role have been computing answers for too long; after a"
    " failure, its questions wait for each other.",
}
#: Spends are kept for ever, and a small epsilon pays for a million of them.
_KEPT_CHARACTERS = 10_000


class LedgerStore:
    """A `dpsql.ledger.model.Ledger` in the tables of a database.

    Parameters
    ----------
    transactions : Transactions
        Of one backend, which asks one question at a time.
    wait : float
        Seconds to wait for another session that computes the same answer.
    """

    def __init__(
        self,
        transactions: Transactions,
        *,
        wait: float = 600.0,
    ) -> None:
        self.transactions = transactions
        self._wait = wait
        self._no_failures: set[int] = set()

    def peek(self, role: int, text_key: bytes) -> Hit | None:
        """See `dpsql.ledger.model.Ledger.peek`."""
        rows = self._call("peek", _PEEK, (str(role), _bytea(text_key)))
        return Hit(_int(rows[0][0]), _text(rows[0][1]), _time(rows[0][2])) if rows else None

    def open(self, charge: Charge) -> Hit | Charged:
        """See `dpsql.ledger.model.Ledger.open`."""
        for spend in tuple(self._no_failures):
            self._take_from_failures(spend)
        deadline = time.monotonic() + self._wait
        pause = 0.002
        while True:
            row = self._open_once(charge)
            if row[0] in ("hit", "shown"):
                return Hit(_int(row[1]), _text(row[2]), _time(row[3]), row[0] == "shown")
            if row[0] == "charged":
                return Charged(_int(row[1]))
            if row[0] not in ("pending", "crowded"):
                raise refusal(_text(row[0]), charge, _account(row), _cap(row), row[2])
            if time.monotonic() > deadline:
                raise unavailable(_WAITED[row[0]], "Ask again later.")
            self._sleep(pause)
            pause = min(pause * 1.5, 0.05)

    def outlook(self, charge: Charge) -> Outlook:
        """See `dpsql.ledger.model.Ledger.outlook`."""
        parameters = (
            str(charge.role),
            _integers(charge.roots),
            *_amounts(charge),
            _bytea(charge.key),
            _boolean(charge.fresh),
            charge.covers,
        )
        row = self._call("outlook", _OUTLOOK, parameters)[0]
        return outlook(_text(row[0]), charge, _account(row), _cap(row), row[2])

    def finish(self, charged: Charged, payload: str) -> datetime | None:
        """See `dpsql.ledger.model.Ledger.finish`.

        The commit need not be durable: if a crash loses it, the charge remains and asking again
        is charged again.  A statement that fails is tried once more.  If that fails, too, others
        may compute the answer, and the charge is still no failure: the answer was computed.
        """
        parameters = (str(charged.spend), payload)
        try:
            try:
                rows = self._call("finish", _FINISH, parameters)
            except LedgerUnavailable:
                rows = self._call("finish", _FINISH, parameters)
        except LedgerUnavailable:
            self._end(charged, "answered")
            raise
        return None if rows[0][0] is None else _time(rows[0][0])

    def fail(self, charged: Charged, *, counts: bool = True) -> None:
        """See `dpsql.ledger.model.Ledger.fail`.

        If the ledger cannot be written, the session ends: that gives the question up, too, and
        counts as a failure unless `_end` takes the failure away.
        """
        try:
            self._call("fail", _FAIL, (str(charged.spend), _boolean(counts)))
        except DpsqlError:
            if counts:
                self.transactions.close()
            else:
                self._end(charged, "failed")

    def purge(self) -> int:
        """See `dpsql.ledger.model.Ledger.purge`."""
        purged, after = 0, "\\x"
        while True:
            ((number, last),) = self._call("purge", _PURGE, (after,))
            purged += _int(number)
            if last is None:
                return purged
            after = last

    def _open_once(self, charge: Charge) -> Row:
        parameters = (
            str(charge.role),
            _integers(charge.roots),
            *_amounts(charge),
            _bytea(charge.key),
            None if charge.text_key is None else _bytea(charge.text_key),
            charge.mechanism,
            charge.method,
            charge.label,
            _kept(charge.question),
            _boolean(charge.fresh),
            self.transactions.backend_start,
            None if charge.token is None else _integers(charge.objects),
            None if charge.token is None else _bytea(charge.token),
            None if charge.shared is None else str(charge.shared),
            charge.covers,
        )
        return self._call("open", _OPEN, parameters)[0]

    def _end(self, charged: Charged, state: str) -> None:
        """Let others have the question, and take its charge from the failures, now or later.

        What cannot be taken away now is before the session's next charge, or is a failure.
        """
        self._no_failures.add(charged.spend)
        try:
            self._take_from_failures(charged.spend)
            self._call("ended", _ENDED, (str(charged.spend), state))
        except DpsqlError:
            pass
        finally:
            self.transactions.close()

    def _take_from_failures(self, spend: int) -> None:
        self._call("no_failure", _NO_FAILURE, (str(spend),))
        self._no_failures.discard(spend)

    def _call(self, name: str, sql: str, parameters: tuple[str | None, ...]) -> list[Row]:
        try:
            return self.transactions.call(name, sql, parameters)
        except StatementFailed as error:
            raise _refused(error) from None

    def _sleep(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, 0.02))
            self.transactions.tick()


def _refused(error: StatementFailed) -> LedgerUnavailable:
    if error.sqlstate in _IN_RECOVERY:
        return standby()
    return unavailable(
        f"The ledger's statement failed with SQLSTATE {error.sqlstate}.", "Ask again later."
    )


def _account(row: Row) -> Account | None:
    amounts = [Fraction(amount) for amount in row[4:8] if amount is not None]
    if len(amounts) < 4:
        return None
    return Account(
        _text(row[8]),
        amounts[0],
        amounts[1],
        amounts[2],
        amounts[3],
        window=row[9],
        window_end=None if row[10] is None else _time(row[10]),
    )


def _cap(row: Row) -> Cap | None:
    if row[11] is None:
        return None
    return Cap(row[11], row[12] == "t", None if row[13] is None else int(row[13]))


def _integers(values: tuple[int, ...]) -> str:
    return "{" + ",".join(str(int(value)) for value in values) + "}"


def _amounts(charge: Charge) -> tuple[str, str, str | None, str | None]:
    return (
        amount_text(charge.epsilon),
        amount_text(charge.delta),
        None if charge.rho is None else amount_text(charge.rho),
        None if charge.rho_delta is None else amount_text(charge.rho_delta),
    )


def _kept(question: str) -> str:
    """Return what the ledger shows of a question; its identity is in the key."""
    if len(question) <= _KEPT_CHARACTERS:
        return question
    return f"{question[:_KEPT_CHARACTERS]}... ({len(question)} characters)"


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _bytea(value: bytes) -> str:
    return "\\x" + value.hex()


def _text(value: str | None) -> str:
    if value is None:
        raise unavailable("The ledger answered with a null.")
    return value


def _int(value: str | None) -> int:
    return int(_text(value))


def _time(value: str | None) -> datetime:
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=_int(value))
