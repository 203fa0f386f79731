"""Settings, parameters, budgets and owners' calls that are refused: all that is told, no charge."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.refusals import Refusal, check, read_table


@pytest.mark.parametrize("refusal", read_table("calls"))
def test_a_call_is_refused_in_these_words_and_costs_nothing(
    ask_as: Any, admin: Any, refusal: Refusal
) -> None:
    check(ask_as(refusal.user), admin, refusal)
