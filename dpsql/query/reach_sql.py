"""The groups that a unit reaches: at most so many, by a rule that looks at no other unit.

Which groups of a unit are kept depends on the unit and its own groups alone: those first by a hash
of the group, seeded by a hash of the unit, so that units keep different ones and all groups lose
alike (PRIVACY.md sections 5 and 6; docs/proofs/truncation.md, claim 6).
"""

from __future__ import annotations

from sqlglot import exp

from dpsql.model import JoinQuery
from dpsql.query.source_sql import of
from dpsql.sqltree import column, number, sql


def within_reach(answer: exp.Select, query: JoinQuery, most: int) -> exp.Select:
    """Keep of an answer per group and unit the rows in ``most`` groups of each unit.

    Parameters
    ----------
    answer : Select
        A statement with the columns ``a<attribute>`` of unit and groups.
    query : JoinQuery
        The question.
    most : int
        0: all groups.
    """
    # a cell of a range is no group: a unit may have values in all of them
    groups = of("", dict.fromkeys(query.groups[:-1] if query.cells else query.groups))
    if not (most and groups):
        return answer
    unit = column("", f"a{query.unit}")
    seed = sql("pg_catalog.hashtextextended(:unit::text, 0)", unit=unit)
    for group in groups:
        seed = sql(
            "pg_catalog.hashtextextended(coalesce(:group::text, ''), :seed)", group=group, seed=seed
        )
    kept: exp.Select = sql(
        "SELECT * FROM (SELECT r.*, dense_rank() OVER (PARTITION BY :unit ORDER BY :seed, :texts)"
        " AS reach FROM :answer AS r) AS k WHERE reach <= :most",
        unit=unit,
        seed=seed,
        texts=[sql('(:group::text) COLLATE "C"', group=group) for group in groups],
        answer=answer,
        most=number(most),
    )
    return kept
