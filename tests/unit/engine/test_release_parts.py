"""Parts of a release that need no server: terms, names, what noise from tables adds, marginals."""

from __future__ import annotations

import random
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from dpsql.engine.release_comments import _up
from dpsql.engine.release_noise import added, most_epsilon, reserve, zcdp
from dpsql.engine.release_price import _decimal
from dpsql.engine.release_table import check_name, table_name
from dpsql.engine.release_terms import Terms
from dpsql.errors import InvalidParameter
from dpsql.statistics.tabulation import Tabulation, _words
from dpsql.statistics.tabulation_sql import _name
from dpsql.workload.candidates import candidates, make
from dpsql.workload.matrix import Identity, Prefix, Total
from dpsql.workload.mechanism import Budget
from dpsql.workload.names import DATA_INDEPENDENT, GAUSSIAN_ONLY, MECHANISMS, ON_REQUEST
from tests.unit.workload import asked


def test_null_is_what_is_not_said_and_case_does_not_matter() -> None:
    assert Terms.of(None, None, None, None, None) == Terms()
    terms = Terms.of("1", "0", "Opt_Kron", "NONE", [1, 2.5])
    assert (terms.mechanism, terms.postprocess, terms.weights) == ("opt_kron", "none", (1.0, 2.5))
    assert Terms.of(None, None, "", None, None).mechanism == ""
    with pytest.raises(InvalidParameter, match="NULL"):
        Terms.of(None, None, None, None, [1, None])


def test_terms_are_refused_without_numpy() -> None:
    code = "import sys, dpsql.engine.release_terms; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_name_is_that_of_a_mechanism_and_of_its_noise() -> None:
    workload = asked.marginals((3, 2), 3)
    for name in MECHANISMS[1:]:
        assert make(name, workload, Budget(2, Fraction(1, 2))).name == name
        if name in GAUSSIAN_ONLY:
            with pytest.raises(InvalidParameter, match="needs Gaussian noise"):
                make(name, workload, Budget(1, Fraction(1)))
        else:
            make(name, workload, Budget(1, Fraction(1)))
    assert {"auto", *DATA_INDEPENDENT, *ON_REQUEST} == set(MECHANISMS)
    with pytest.raises(InvalidParameter, match="there is no mechanism"):
        make("auto", workload, Budget(1, Fraction(1)))


def test_the_most_epsilon_is_where_tables_leave_some_delta() -> None:
    for delta in (Fraction(1, 10**3), Fraction(1, 10**9), Fraction(1, 10**20)):
        most = most_epsilon(delta)
        assert reserve(Fraction(most)) < delta <= reserve(Fraction(most + 1))
    assert most_epsilon(Fraction(1, 10**40)) == 0


def test_costs_in_comments_are_short_and_not_below_what_they_are() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201
    random_ = random.Random(seed)
    for amount in (1.0, 0.1, 100.0, 1e-9, *(10 ** random_.uniform(-40, 2) for _ in range(300))):
        shown = _up(amount)
        assert len(shown) <= 12
        assert amount * (1 - 1e-14) <= float(shown) <= amount * (1 + 2e-5), seed
    assert [_up(x) for x in (0.0, 1.0, 0.1000001, 1e-9)] == ["0", "1", "0.100001", "1e-09"]


@pytest.mark.parametrize("name", ["a", "x" * 63, "ü" * 31, 'a"b', "select", " "])
def test_names_that_tables_can_have(name: str) -> None:
    check_name(name)
    assert table_name(name).startswith("dpv.")


@pytest.mark.parametrize("name", ["", "x" * 64, "ü" * 32])
def test_names_that_no_table_can_have(name: str) -> None:
    with pytest.raises(InvalidParameter, match="name of a table"):
        check_name(name)


def test_amounts_are_rounded_down_in_decimals() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201
    random_ = random.Random(seed)
    for _ in range(500):
        value = Fraction(random_.randint(0, 10**30), random_.randint(1, 10**60))
        written = Fraction(Decimal(_decimal(value)))
        assert written <= value < written + Fraction(1, 10**60)


@pytest.mark.parametrize(
    "epsilon", [Fraction(1, 10**6), Fraction(1, 10), Fraction(1), Fraction(50)]
)
def test_the_reserve_covers_what_tables_add(epsilon: Fraction) -> None:
    """Delta for noise from tables is set apart before a mechanism is known; none needs more."""
    kept = reserve(epsilon)
    assert kept > 0
    ranges = asked.workload((30, 40), [Prefix(30), Total(40)], [Total(30), Identity(40)])
    for workload in (
        asked.marginals((2,), 1),
        asked.marginals((30, 40), 0, 1, 2, 3),
        asked.marginals((1000, 1000, 5), 3, 4, 7),
        ranges,
    ):
        names = ("opt_plus",) if workload is ranges else ("identity", "opt_m")
        for order, loss in ((1, epsilon), (2, epsilon**2 / 50)):
            found, _ = candidates(workload, [Budget(order, loss)], names=lambda _, own=names: own)  # type: ignore[arg-type, misc]
            assert found
            for mechanism in found:
                assert 0 < added(mechanism, epsilon) <= kept
                if order == 2:
                    price = zcdp(mechanism)
                    assert mechanism.loss <= price.rho < mechanism.loss * Fraction(1001, 1000)
                    # beyond that a release is not worth its delta, which the ledger then refuses
                    assert price.delta >= 0
                    assert price.delta < Fraction(1, 10**12) or epsilon > 1


@pytest.mark.parametrize("scale", [1, 2**40, 2**53])
def test_marginals_are_exact_at_every_size(scale: int) -> None:
    random_ = np.random.default_rng(5)
    sizes = (3, 4, 2)
    codes = [random_.integers(0, n, 50) for n in sizes]
    weights = random_.integers(1, 9, 50) * scale + random_.integers(0, 5, 50)
    table = Tabulation(sizes, codes, weights)
    for attributes in ((), (0,), (2,), (0, 2), (1, 2), (0, 1, 2)):
        expected: dict[tuple[int, ...], int] = {}
        for row in range(50):
            key = tuple(int(codes[i][row]) for i in attributes)
            expected[key] = expected.get(key, 0) + int(weights[row])
        found = table.marginal(attributes)
        assert found.shape == tuple(sizes[i] for i in attributes)
        assert {k: int(v) for k, v in np.ndenumerate(found) if v} == expected


def test_codes_of_any_domain_fit_their_words() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201
    random_ = random.Random(seed)
    for _ in range(200):
        number = random_.randint(1, 30)
        sizes = [random_.choice([1, 2, 7, 1000, 10**6]) for _ in range(number)]
        words = _words(sizes)
        assert [i for word in words for i in word] == list(range(number))
        for word in words:
            room = 1
            for i in word:
                room *= sizes[i]
            assert room < 2**62


def test_names_of_levels_never_meet() -> None:
    """Two lists of texts have one name only if they are equal, whatever is in the texts."""
    parts = [None, "", "n", "v0:", "v1:", "1:n", ":", "v1:n", "nn", "v2:nn", "0"]
    for width in (1, 2):
        lists = [
            (a,) if width == 1 else (a, b) for a in parts for b in (parts if width == 2 else [0])
        ]
        assert len({_name(x) for x in lists}) == len(set(lists))  # type: ignore[arg-type]
