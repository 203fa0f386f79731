"""Settings and parameters are user input."""

from __future__ import annotations

from fractions import Fraction

import pytest

from dpsql.engine.request import Settings
from dpsql.errors import InvalidParameter


def test_settings_are_read_exactly() -> None:
    settings = Settings.from_texts({"epsilon": "0.1", "delta": "1e-9", "method": "Residual"})
    assert settings.epsilon == Fraction(1, 10)
    assert settings.delta == Fraction(1, 10**9)
    assert settings.method == "residual"
    assert Settings.from_texts({"epsilon": "1e-06"}).epsilon == Fraction(1, 10**6)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("epsilon", "0"),
        ("epsilon", "-1"),
        ("epsilon", "1e-300"),
        ("epsilon", "0.0000009"),
        ("epsilon", "101"),
        ("epsilon", "NaN"),
        ("epsilon", "Infinity"),
        ("epsilon", "one"),
        ("delta", "-1e-9"),
        ("delta", "0.5"),
        ("method", "guessing"),
        ("sampling_rate", "0"),
        ("statistics", "old"),
        ("mechanism", "gauss"),
        ("confidence", "1"),
        ("confidence", "0"),
        ("max_epsilon_per_query", "-2"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(InvalidParameter, match=f"dp.{name}") as caught:
        Settings.from_texts({name: text})
    assert caught.value.sqlstate == "PD040"


def test_minus_one_means_no_cap_per_query() -> None:
    assert Settings.from_texts({"max_epsilon_per_query": "-1"}).max_epsilon_per_query is None


def test_a_query_above_its_own_cap_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="max_epsilon_per_query"):
        Settings.from_texts({"epsilon": "2", "max_epsilon_per_query": "1"})
