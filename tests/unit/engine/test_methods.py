"""A sensitivity method is one class; the example of docs/extending.md is one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dpsql.core.mechanisms.laplace import GlobalLaplace, plan_global
from dpsql.counted import Counts
from dpsql.engine.methods import select
from dpsql.engine.methods.base import SensitivityMethod, Terms
from dpsql.engine.methods.multi_unit import MultiUnitMethod
from dpsql.engine.methods.plans import ResultCounts, narrowed
from dpsql.engine.methods.public import PublicMethod
from dpsql.engine.methods.rows import RowMethod
from dpsql.engine.methods.statements import of_results
from dpsql.engine.methods.units import UnitMethod
from dpsql.engine.request import Settings
from dpsql.errors import InternalError
from dpsql.model import JoinQuery

PAGE = Path(__file__).parents[3] / "docs" / "extending.md"
QUERY = JoinQuery((), ())


def example() -> Any:
    """Return the class that the page shows."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names = {
        "dataclass": dataclass,
        "SensitivityMethod": SensitivityMethod,
        "GlobalLaplace": GlobalLaplace,
        "plan_global": plan_global,
        "ResultCounts": ResultCounts,
        "narrowed": narrowed,
        "Counts": Counts,
        "of_results": of_results,
    }
    exec(re.sub(r"^   ", "", code, flags=re.MULTILINE), names)
    return names["OneRelation"]


def test_the_example_of_the_documentation_answers() -> None:
    method = example()
    assert not method.answers(QUERY, 1)
    quoted = method.quote(QUERY, Terms(Settings(epsilon=Fraction(2)), 2, 1, selects=False), None)
    assert quoted.guarantee.epsilon == 1
    assert (quoted.label, quoted.name, quoted.plan()) == ("proved", "one", ResultCounts(QUERY))
    silent = SimpleNamespace(noise=SimpleNamespace(discrete_laplace=lambda scale: 0))
    assert quoted.release(Counts(boundaries={}, groups={(): 7}), [()], silent).values == [7]


def test_no_method_takes_what_another_reads() -> None:
    with pytest.raises(InternalError, match="expected Counts, got"):
        example()(QUERY, plan_global(Fraction(1))).release(object(), [()], None)


def test_the_first_method_that_answers_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (PublicMethod, MultiUnitMethod, UnitMethod, RowMethod) == select.METHODS
    terms = Terms(Settings(), 1, 1, selects=False)
    assert isinstance(select.quote(QUERY, terms, None), PublicMethod)  # type: ignore[arg-type]
    monkeypatch.setattr(select, "METHODS", ())
    with pytest.raises(InternalError, match="no method answers"):
        select.quote(QUERY, terms, None)  # type: ignore[arg-type]
