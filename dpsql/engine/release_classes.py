"""Which levels a workload tells apart, and which attributes its conditions look at together.

Values that every query counts alike are one level: fewer cells to measure, and less noise in sums
of them.  Attributes that one condition spans become one attribute, whose levels are combinations of
these.  Functions of the statement and of public levels (PRIVACY.md section 2 (c)).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

from dpsql.errors import NotAnswerable
from dpsql.ports import Database
from dpsql.query.asked import AskedSet, Condition, Predicate, WorkloadQuestion
from dpsql.sqltree import aliased, cast, column, parameter, raw, render, sql, unnest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dpsql.engine.release_matrices import Mask
    from dpsql.statistics.tabulation_sql import Levels

    Codes = NDArray[np.int64]

#: Levels of an attribute that is made of several because a condition spans them.
MAX_MERGED = 4096
_TRUE = 1


def told_apart(
    question: WorkloadQuestion, levels: Sequence[Levels], database: Database
) -> tuple[tuple[Levels, ...], dict[Condition, Codes]]:
    """Return the attributes of the workload: levels that it tells apart, merged where it must be.

    Beside them what conditions on keys of one domain are for each level of its attribute; see
    `evaluated`.

    Parameters
    ----------
    question : WorkloadQuestion
        What is asked.
    levels : sequence of Levels
        One for each domain, its values in the order of their types.
    database : Database
        Evaluates conditions on public levels.

    Raises
    ------
    NotAnswerable
        When conditions span too many combinations.
    """
    atoms = dict.fromkeys(a for c in _conditions(question) for a in (c, *c.atoms))
    known = _values(atoms, question, levels, database)
    reduced = [_classes(question, level, known) for level in levels]
    classes = [level for level, _ in reduced]
    place = {key: i for i, level in enumerate(levels) for key in level.keys}
    codes = {c: found[reduced[place[min(c.keys)]][1]] for c, found in known.items()}
    spanned = _spanned(question, classes)
    apart = [level for i, level in enumerate(classes) if not any(i in g for g in spanned)]
    attributes = (*apart, *(_merged([classes[i] for i in together]) for together in spanned))
    return attributes, codes | _repeated(codes, place, classes, spanned)


def evaluated(
    question: WorkloadQuestion,
    levels: Sequence[Levels],
    known: Mapping[Condition, Codes],
    database: Database,
) -> dict[Condition, Mask]:
    """Say for each condition of which levels of its attribute it is true; of some it is known."""
    conditions = dict.fromkeys(_conditions(question))
    rest = [c for c in conditions if c not in known]
    found = {**known, **_values(rest, question, levels, database)}
    return {c: found[c] == _TRUE for c in conditions if c in found}


def _repeated(
    known: Mapping[Condition, Codes],
    place: Mapping[int, int],
    classes: Sequence[Levels],
    spanned: Sequence[Sequence[int]],
) -> dict[Condition, Codes]:
    """Say what conditions on one of several attributes are for the levels of all together."""
    import numpy as np

    found = {}
    for together in spanned:
        places = np.indices([len(classes[i].values) for i in together]).reshape(len(together), -1)
        for condition, codes in known.items():
            i = place[min(condition.keys)]
            if i in together:
                found[condition] = codes[places[together.index(i)]]
    return found


def _conditions(question: WorkloadQuestion) -> Iterable[Condition]:
    return (c for asked in question.sets for p in asked.where for c in p.either)


# -- classes ------------------------------------------------------------------------------


def _classes(
    question: WorkloadQuestion, level: Levels, known: Mapping[Condition, Codes]
) -> tuple[Levels, Codes]:
    """Put values together that every query counts alike; leave out those that none counts.

    Returned with the places of the values that are left.

    Two values are counted alike if the keys of theirs that some set asks, or that a condition
    compares with keys of other attributes, are equal, and all other conditions, also those that are
    part of one, say the same of both.
    """
    import numpy as np

    from dpsql.statistics.tabulation_sql import Lookup

    own = frozenset(level.keys)
    asked = own & {p.key for s in question.sets for p in s.parts}
    leaves = dict.fromkeys(
        leaf
        for c in _conditions(question)
        for leaf in ((c,) if c in known or not c.atoms else c.atoms)
        if leaf.keys & own
    )
    needed = asked.union(*(leaf.keys & own for leaf in leaves if leaf not in known))
    number = len(level.values)
    signs: list[Any] = [known[leaf] for leaf in leaves if leaf in known]
    for key in sorted(needed):
        n = level.keys.index(key)
        code = {text: i for i, text in enumerate(dict.fromkeys(v[n] for v in level.values))}
        signs.append(np.array([code[value[n]] for value in level.values]))
    counted = np.ones(number, dtype=bool)
    if not asked:
        counted = np.logical_or.reduce([_holds(s, own, known, number) for s in question.sets])
    if not counted.any():
        return level, np.arange(number)  # every query is 0, which is refused later
    (kept,) = np.nonzero(counted)
    signature = np.stack([np.zeros(number, dtype=np.int64), *signs])[:, kept]
    _, first, found = np.unique(signature, axis=1, return_index=True, return_inverse=True)
    if len(first) == number:
        return level, np.arange(number)
    order = np.argsort(first)
    rank = np.argsort(order)
    part = Lookup(
        level.keys,
        tuple(level.values[i] for i in kept.tolist()),
        tuple(rank[found.reshape(-1)].tolist()),
        len(first),
    )
    places = kept[first[order]]
    values = tuple(level.values[i] for i in places.tolist())
    return replace(level, values=values, parts=(part,)), places


def _holds(
    asked: AskedSet, own: frozenset[int], known: Mapping[Condition, Codes], number: int
) -> Mask:
    """Say of which levels all that a set asks of this attribute alone is true."""
    import numpy as np

    found = np.ones(number, dtype=bool)
    for predicate in asked.where:
        if all(c.keys <= own for c in predicate.either):
            found &= np.logical_or.reduce([known[c] == _TRUE for c in predicate.either])
    return found


# -- attributes that a condition looks at together --------------------------------------------


def _merged(levels: Sequence[Levels]) -> Levels:
    """Make one attribute of several, whose levels are all combinations."""
    from dpsql.statistics.tabulation_sql import Levels

    size = math.prod(len(level.values) for level in levels)
    if size > MAX_MERGED:
        raise NotAnswerable(
            "a condition spans keys with too many combinations",
            detail=f"They have {size}; at most {MAX_MERGED} are looked at together.",
            hint="Write conditions on single keys, joined by AND, or coarser keys.",
        )
    return Levels(
        tuple(k for level in levels for k in level.keys),
        tuple(
            tuple(v for part in parts for v in part)
            for parts in product(*(level.values for level in levels))
        ),
        tuple(part for level in levels for part in level.lookups),
        {key: texts for level in levels for key, texts in level.sorted.items()},
    )


def _spanned(question: WorkloadQuestion, levels: Sequence[Levels]) -> list[list[int]]:
    """Find the attributes that some condition looks at together, in groups.

    To a fixed point: attributes that one condition puts together are one for all others.
    """
    groups = [[i] for i in range(len(levels))]
    while (together := _together(question, levels, groups)) is not None:
        touched = [i for n in together for i in groups[n]]
        groups = [g for n, g in enumerate(groups) if n not in together] + [sorted(touched)]
    return [g for g in groups if len(g) > 1]


def _together(
    question: WorkloadQuestion, levels: Sequence[Levels], groups: Sequence[Sequence[int]]
) -> set[int] | None:
    """Find groups that a condition spans."""
    place = {key: n for n, group in enumerate(groups) for i in group for key in levels[i].keys}
    for asked in question.sets:
        for predicate in asked.where:
            spans = [{place[k] for k in c.keys} for c in predicate.either]
            if not _stays_apart(asked, predicate, spans, place):
                return set().union(*spans)
    return None


def _stays_apart(
    asked: AskedSet, predicate: Predicate, spans: Sequence[set[int]], place: Mapping[int, int]
) -> bool:
    """Tell whether a disjunction can be a product of its own (HDMM, appendix A)."""
    together = set().union(*spans)
    if len(together) == 1:
        return True
    if any(len(s) != 1 for s in spans):
        return False
    grouped = {place[p.key] for p in asked.parts}
    others = [{place[k] for c in p.either for k in c.keys} for p in asked.where if p != predicate]
    return not together & grouped.union(*others) and all(len(o) == 1 for o in others)


# -- conditions -------------------------------------------------------------------------


def _values(
    conditions: Iterable[Condition],
    question: WorkloadQuestion,
    levels: Sequence[Levels],
    database: Database,
) -> dict[Condition, Codes]:
    """Say what conditions that look at one attribute are for each level: true, false or unknown."""
    import numpy as np

    place = {key: i for i, level in enumerate(levels) for key in level.keys}
    found = {}
    for condition in conditions:
        places = {place[k] for k in condition.keys}
        if len(places) == 1:
            rows = _evaluated(condition, levels[places.pop()], question, database)
            found[condition] = np.array(rows, dtype=np.int64)
    return found


def _evaluated(
    condition: Condition, level: Levels, question: WorkloadQuestion, database: Database
) -> list[int]:
    arrays: list[tuple[str, object]] = []
    names, columns = [], []
    for n, key in enumerate(level.keys):
        arrays.append(("text[]", [value[n] for value in level.values]))
        names.append(f"k{key}")
        type_ = question.keys[key].type_name
        columns.append(aliased(cast(column("u", f"k{key}"), type_), f'"k{key}"'))
    given = [parameter(n) for n in range(1, len(arrays) + 1)]
    statement = sql(
        "SELECT coalesce(CAST(:condition AS integer), 2) AS value"
        " FROM (SELECT :columns, u.o FROM :texts) AS r0 ORDER BY r0.o",
        condition=raw(condition.sql),
        columns=columns,
        texts=unnest(given, "u", [*names, "o"], ordinality=True),
    )
    rows = database.execute(render(statement), arrays)
    return [int(str(row[0])) for row in rows]
