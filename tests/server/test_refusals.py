"""Constructs that are refused: SQLSTATE, message, detail, hint, and no charge."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.refusals import Refusal, check, read_table


@pytest.mark.parametrize("refusal", read_table("constructs"))
def test_a_construct_is_refused_by_name_and_place_and_costs_nothing(
    asker: Any, admin: Any, refusal: Refusal
) -> None:
    check(asker, admin, refusal)
