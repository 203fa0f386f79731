"""A copy of tables of many attributes, whose rows are nearly all of different types."""

from __future__ import annotations

from typing import Any

from tests.server.synthesising import begun  # noqa: F401
