"""Persons of the Census' Summary File 1 as unions of products: the workloads SF1 and SF1+.

papers/hdmm.txt (section 2, example 8) says what they are made of without listing them.  The tables
are those of the 2010 Summary File 1 (https://www.census.gov/prod/cen2010/doc/sf1.pdf: P1, P3 to P5,
P8 to P12, P12A to P12I, PCT12, PCT12A to PCT12O), with the rows that the authors' published code
has (github.com/dpcomp-org/hdmm, experiments/journal): a table's totals are queries too, and what
several tables ask counts several times.  The relationship to the householder, which no query asks
for, is left out.  The number of queries (4,151) and the errors of Identity are the paper's; its
errors of the workload itself are those of sensitivity 50, which is the sum over the products: one
person changes 41 queries at most, since nobody is Hispanic and not.
"""

from __future__ import annotations

import itertools

import numpy as np

from dpsql.workload.domain import Domain
from dpsql.workload.matrix import Dense, Floats, Identity, QueryMatrix, Stacked, Total
from dpsql.workload.workload import Workload

#: Sex, Hispanic or not, six races (a person is of any set of them), age.
SIZES = (2, 2, 64, 115)
STATES = 51
RACES = 6
#: Ages at which the groups of table P12 begin.
AGES = (
    *(0, 5, 10, 15, 18, 20, 21, 22, 25, 30, 35, 40, 45, 50, 55, 60, 62, 65, 67, 70, 75, 80, 85),
)
#: Those of table PCT12: single years, then five at a time.
YEARS = (*range(101), 105, 110)

ALL_SEXES, ALL_ETHNICITIES, ALL_RACES, ALL_AGES = (Total(n) for n in SIZES)
SEX = Identity(2)
SEX_AND_TOTAL = Stacked.of(SEX, ALL_SEXES)
HISPANIC_OR_NOT = Identity(2)
HISPANIC, NOT_HISPANIC = Dense(np.array([[1.0, 0.0]])), Dense(np.array([[0.0, 1.0]]))

Factors = tuple[QueryMatrix, ...]


def sf1(*, states: bool = False) -> Workload:
    """Write the workload down.

    Parameters
    ----------
    states : bool
        Ask every query of the nation and of each state (SF1+).
    """
    products = list(itertools.chain.from_iterable(_tables()))
    if not states:
        return Workload.of(Domain.of(*SIZES), *products)
    where = Stacked.of(Identity(STATES), Total(STATES))
    return Workload.of(Domain.of(*SIZES, STATES), *((*p, where) for p in products))


def _tables() -> list[list[Factors]]:
    """List the products of each table; sex, ethnicity, race, age."""
    seven, all_sets = _seven_races(), _sets_of_races()
    white = Dense(seven.dense()[:1])
    adults = _age_groups((18,))
    everyone = _asked()
    return [
        [everyone],  # P1
        [_asked(race=seven), everyone],  # P3
        [_asked(hispanic=HISPANIC_OR_NOT), everyone],  # P4
        [  # P5
            _asked(hispanic=HISPANIC_OR_NOT, race=seven),
            _asked(hispanic=Stacked.of(HISPANIC_OR_NOT, ALL_ETHNICITIES)),
        ],
        [_asked(race=all_sets), everyone],  # P8
        [*_by_race_or_hispanic(all_sets, ALL_AGES), everyone],  # P9
        [_asked(race=all_sets, age=adults), _asked(age=adults)],  # P10
        [*_by_race_or_hispanic(all_sets, adults), _asked(age=adults)],  # P11
        _by_sex_and_age(_age_groups(AGES)),  # P12
        [  # P12A to P12I
            *_by_sex_and_age(_age_groups(AGES), race=seven),
            *_by_sex_and_age(_age_groups(AGES), hispanic=HISPANIC),
            *_by_sex_and_age(_age_groups(AGES), hispanic=NOT_HISPANIC, race=white),
        ],
        _by_sex_and_age(_age_groups(YEARS)),  # PCT12
        [  # PCT12A to PCT12O
            *_by_sex_and_age(_age_groups(YEARS), race=seven),
            *_by_sex_and_age(_age_groups(YEARS), hispanic=HISPANIC),
            *_by_sex_and_age(_age_groups(YEARS), hispanic=NOT_HISPANIC, race=seven),
        ],
    ]


def _asked(
    sex: QueryMatrix = ALL_SEXES,
    hispanic: QueryMatrix = ALL_ETHNICITIES,
    race: QueryMatrix = ALL_RACES,
    age: QueryMatrix = ALL_AGES,
) -> Factors:
    return sex, hispanic, race, age


def _by_race_or_hispanic(races: QueryMatrix, ages: QueryMatrix) -> list[Factors]:
    return [
        _asked(hispanic=HISPANIC_OR_NOT, age=ages),
        _asked(hispanic=NOT_HISPANIC, race=races, age=ages),
    ]


def _by_sex_and_age(
    ages: QueryMatrix, hispanic: QueryMatrix = ALL_ETHNICITIES, race: QueryMatrix = ALL_RACES
) -> list[Factors]:
    return [_asked(SEX, hispanic, race, ages), _asked(SEX_AND_TOTAL, hispanic, race)]


def _age_groups(begins: tuple[int, ...]) -> Dense:
    """Count the ages from each begin to the next."""
    groups: Floats = np.zeros((len(begins), SIZES[3]))
    for row, (begin, end) in zip(groups, itertools.pairwise((*begins, SIZES[3])), strict=True):
        row[begin:end] = 1
    return Dense(groups)


def _seven_races() -> Dense:
    """Count those of one race alone, by race, and all others.

    A person of no race, who cannot be, is one of the others, as in the authors' code.
    """
    rows: Floats = np.zeros((RACES + 1, SIZES[2]))
    rows[np.arange(RACES), 1 << np.arange(RACES)] = 1
    rows[-1] = 1 - rows.sum(axis=0)
    return Dense(rows)


def _sets_of_races() -> Dense:
    """Count every set of races, those of each number of races, and those of two or more."""
    numbers = np.array([level.bit_count() for level in range(SIZES[2])])
    by_number = (numbers == np.arange(1, RACES + 1)[:, None]).astype(np.float64)
    several = (numbers >= 2).astype(np.float64)[None, :]
    return Dense(np.concatenate([np.eye(SIZES[2])[1:], by_number, several]))
