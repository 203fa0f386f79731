"""What one call asks for: text, parameters, who asks, and the settings, checked."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from fractions import Fraction

from dpsql.errors import InvalidParameter
from dpsql.ledger.amounts import amount_text

METHODS = (
    *("auto", "residual", "elastic", "truncation"),
    *("sampling", "sampling_published", "sketch", "sketch_published"),
)
STATISTICS = ("live", "stored", "auto")
MECHANISMS = ("auto", "laplace", "cauchy", "calibrated", "quantile", "r2t")
_NUMBERS = (
    *("epsilon", "delta", "max_epsilon_per_query", "confidence", "sampling_rate"),
    *("max_contribution", "max_groups_contributed", "max_rows_contributed", "min_frequency"),
)
MIN_EPSILON = Fraction(1, 10**6)
MAX_EPSILON = Fraction(100)
MIN_LEVEL = Fraction(1, 10**6)
MAX_DELTA = Fraction(1, 1000)


@dataclass(frozen=True, slots=True)
class Role:
    """The role in effect for the caller, evaluated at execution (PRIVACY.md section 7)."""

    oid: int
    name: str


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a query: privacy parameters exact, choices from closed lists.

    Raises
    ------
    InvalidParameter
        From `from_texts`, when a setting is outside its range.
    """

    epsilon: Fraction = Fraction(1)
    delta: Fraction = Fraction(1, 10**8)
    method: str = "auto"
    sampling_rate: Fraction = Fraction(1, 1000)
    sampling_filter: bool = False
    statistics: str = "live"
    mechanism: str = "auto"
    max_epsilon_per_query: Fraction | None = None
    fresh: bool = False
    confidence: Fraction = Fraction(95, 100)
    max_contribution: Fraction = Fraction(10**9)
    max_groups_contributed: Fraction = Fraction(0)
    max_rows_contributed: Fraction = Fraction(0)
    min_frequency: Fraction = Fraction(0)

    @classmethod
    def from_texts(cls, texts: Mapping[str, str | None], *, capped: bool = True) -> Settings:
        """Read settings as ``current_setting`` returns them; absent ones keep their default.

        Where a call may name its own epsilon only that is held against the caller's cap: then
        this is called without ``capped``, and `check` later.

        Settings are user input even when a module checks their ranges: without the module
        any role can set a placeholder of any name (STYLE.md 5.2).
        """
        values: dict[str, object] = {}
        for name in _NUMBERS:
            if texts.get(name):
                values[name] = exact(f"dp.{name}", str(texts[name]))
        for name, choices in (
            ("method", METHODS),
            ("mechanism", MECHANISMS),
            ("statistics", STATISTICS),
        ):
            if texts.get(name):
                values[name] = _choice(f"dp.{name}", str(texts[name]), choices)
        for name in ("fresh", "sampling_filter"):
            if texts.get(name):
                values[name] = str(texts[name]).lower() in ("on", "true", "yes", "1")
        if values.get("max_epsilon_per_query") == -1:
            values["max_epsilon_per_query"] = None
        settings = cls(**values)  # type: ignore[arg-type]
        settings.check(capped=capped)
        return settings

    def texts(self) -> dict[str, str]:
        """Write the settings so that `from_texts` reads the same."""
        values: dict[str, str] = {}
        for name in (*_NUMBERS, "method", "mechanism", "statistics", "fresh", "sampling_filter"):
            value = getattr(self, name)
            if isinstance(value, Fraction):
                values[name] = amount_text(value)
            elif value is not None:
                values[name] = str(value)
        return values

    def with_intervals(self, level: str) -> Settings:
        """Return the settings of a call that asks for intervals of its own level."""
        confidence = exact("intervals", level)
        _check_level("intervals", confidence)
        return replace(self, confidence=confidence)

    def check(self, said: Collection[str] = (), *, capped: bool = True) -> None:
        """Check ranges and the caller's own cap; ``said`` are parameters of the call."""
        epsilon, delta = (n if n in said else f"dp.{n}" for n in ("epsilon", "delta"))
        if not MIN_EPSILON <= self.epsilon <= MAX_EPSILON:
            _refuse(epsilon, f"at least 0.000001 and at most {MAX_EPSILON}", self.epsilon)
        if not 0 <= self.delta <= MAX_DELTA:
            _refuse(delta, f"between 0 and {float(MAX_DELTA):g}", self.delta)
        _check_level("dp.confidence", self.confidence)
        if not 0 < self.sampling_rate <= 1:
            _refuse("dp.sampling_rate", "greater than 0 and at most 1", self.sampling_rate)
        for name, least in (
            ("max_contribution", 1),
            ("max_groups_contributed", 0),
            ("max_rows_contributed", 0),
            ("min_frequency", 0),
        ):
            value = getattr(self, name)
            if not least <= value < 2**31 or value.denominator != 1:
                what = f"a whole number of at least {least} and below 2147483648"
                _refuse(f"dp.{name}", what, value)
        cap = self.max_epsilon_per_query
        if cap is not None and cap < 0:
            _refuse("dp.max_epsilon_per_query", "-1 (none) or at least 0", cap)
        if capped and cap is not None and self.epsilon > cap:
            raise InvalidParameter(
                "the query would spend more than dp.max_epsilon_per_query allows",
                detail=f"{epsilon} is {float(self.epsilon):g}, the cap is {float(cap):g}.",
                hint=f"Lower {epsilon} or raise dp.max_epsilon_per_query.",
            )


#: More digits, before or after the point, has no number that is meant.
_DIGITS = 1000
_SHOWN_CHARACTERS = 40


def _clipped(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def exact(name: str, text: str) -> Fraction:
    """Read a decimal number exactly, naming the parameter when it is not one."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite():
        raise InvalidParameter(
            f'parameter "{name}" must be a finite number', detail=f"Got {_clipped(text)!r}."
        )
    # a fraction writes out all digits, which takes hours, and nothing can cancel it
    if len(number.as_tuple().digits) > _DIGITS or (number and abs(number.adjusted()) > _DIGITS):
        raise InvalidParameter(
            f'parameter "{name}" must have at most {_DIGITS} digits',
            detail=f"Got {_clipped(text)}.",
        )
    return Fraction(number)


def _check_level(name: str, level: Fraction) -> None:
    """Check the level of intervals, of which floating-point numbers must keep the distance to 1."""
    if not MIN_LEVEL <= level <= 1 - MIN_LEVEL:
        _refuse(name, "at least 0.000001 and at most 0.999999", level)


def _choice(name: str, text: str, choices: Sequence[str]) -> str:
    if text.lower() not in choices:
        _refuse(name, "one of " + ", ".join(choices), text)
    return text.lower()


#: Larger numbers are no floating-point numbers.
_SHOWN = 10**300


def _refuse(name: str, what: str, got: object) -> None:
    large = isinstance(got, Fraction) and abs(got) > _SHOWN
    shown = f"{float(got):.12g}" if isinstance(got, Fraction) and not large else str(got)[:40]
    raise InvalidParameter(f'parameter "{name}" must be {what}', detail=f"Got {shown}.")
