"""The groups that a unit reaches: at most so many, by a rule that looks at no other unit.

Which groups of a unit are kept depends on the unit and its own groups alone: those first by a hash
of the group, seeded by a hash of the unit, so that units keep different ones and all groups lose
alike (PRIVACY.md sections 5 and 6; docs/proofs/truncation.md, claim 6).
"""

from __future__ import annotations

from dpsql.model import JoinQuery


def within_reach(answer: str, query: JoinQuery, most: int) -> str:
    """Keep of an answer per group and unit the rows in ``most`` groups of each unit.

    Parameters
    ----------
    answer : str
        A statement with the columns ``a<attribute>`` of unit and groups.
    query : JoinQuery
        The question.
    most : int
        0: all groups.
    """
    # a cell of a range is no group: a unit may have values in all of them
    groups = list(dict.fromkeys(query.groups[:-1] if query.cells else query.groups))
    if not (most and groups):
        return answer
    unit = f"a{query.unit}"
    seed = f"pg_catalog.hashtextextended({unit}::text, 0)"
    for a in groups:
        seed = f"pg_catalog.hashtextextended(coalesce(a{a}::text, ''), {seed})"
    order = ", ".join([seed, *(f'(a{a}::text) COLLATE "C"' for a in groups)])
    ranked = f"SELECT r.*, dense_rank() OVER (PARTITION BY {unit} ORDER BY {order}) AS reach"
    return f"SELECT * FROM ({ranked} FROM ({answer}) AS r) AS k WHERE reach <= {most}"
