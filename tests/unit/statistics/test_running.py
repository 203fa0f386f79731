"""Counting in bigint, and in numeric where a number does not fit."""

from __future__ import annotations

import pytest

from dpsql.model import JoinQuery, Occurrence
from dpsql.relation import Relation
from dpsql.statistics.running import OUT_OF_RANGE, in_either


class Failed(Exception):
    def __init__(self, sqlstate: str) -> None:
        self.sqlstate = sqlstate


def attempt(by_steps: bool, fails: dict[bool, str], asked: list[bool]) -> str:
    relation = Relation(1, "public", "t", True, 1, (), by_steps=by_steps)

    def read(numeric: bool) -> str:
        asked.append(numeric)
        if numeric in fails:
            raise Failed(fails[numeric])
        return "numeric" if numeric else "bigint"

    return in_either(JoinQuery((Occurrence(0, relation, ()),), ()), read)


@pytest.mark.parametrize(
    ("by_steps", "fails", "read"),
    [
        (False, {}, [False]),
        (False, {False: OUT_OF_RANGE}, [False, True]),
        (True, {}, [True]),
    ],
)
def test_what_does_not_fit_is_read_again(
    by_steps: bool, fails: dict[bool, str], read: list[bool]
) -> None:
    asked: list[bool] = []
    assert attempt(by_steps, fails, asked) == ("numeric" if read[-1] else "bigint")
    assert asked == read


@pytest.mark.parametrize(
    ("by_steps", "fails", "read"),
    [
        (False, {False: "57014"}, [False]),
        (False, {False: OUT_OF_RANGE, True: OUT_OF_RANGE}, [False, True]),
        (True, {True: OUT_OF_RANGE}, [True]),
    ],
)
def test_other_errors_and_second_ones_end_it(
    by_steps: bool, fails: dict[bool, str], read: list[bool]
) -> None:
    asked: list[bool] = []
    with pytest.raises(Failed):
        attempt(by_steps, fails, asked)
    assert asked == read
