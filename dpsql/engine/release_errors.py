"""Standard errors of answers from a release, exact where its mechanism's covariance is kept.

All numbers of a release are of one estimate, so that the error of an answer is that of the query
which it is, whichever numbers it is made of.  Post-processed numbers have the errors of those that
they were made of, as in the table itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpsql.ports import Database
    from dpsql.query.span import Span
    from dpsql.query.ways import Asked, Test
    from dpsql.workload.matrix import Floats

_SPREAD = "select (r.span -> 'spread')::text as spread from dp.stored_release as r where name = $1"
#: Numbers of the queries of all groups that are written down.
_MOST = 1 << 24


def standard_errors(
    asked: Asked,
    name: str,
    span: Span,
    truth: Mapping[Test, frozenset[int]],
    places: Sequence[tuple[int, ...]],
    database: Database,
) -> list[float] | None:
    """Return the standard error of each group; ``None`` where it is not known.

    Parameters
    ----------
    asked : Asked
        The question.
    name, span : str, Span
        The release.
    truth : mapping
        The levels for which each test is true; without those on several keys there is no error.
    places : sequence of tuple of int
        The levels of each group.
    database : Database
        Has what is kept of the release.
    """
    if any(test not in truth for test in asked.tests):
        return None
    touched = {*asked.groups, *(n for test in asked.tests for n in test.keys)}
    alone = {keys[0]: size for keys, size in span.attributes if len(keys) == 1}
    size = sum(n * (len(places) if key in asked.groups else 1) for key, n in alone.items())
    if not touched <= alone.keys() or size > _MOST or not places:
        return None
    text = database.execute(_SPREAD, [("text", name)])[0][0]
    raw = None if text is None else json.loads(str(text))
    if raw is None:
        return None
    import numpy as np

    from dpsql.workload.spread import load

    queries: list[Floats] = []
    for keys, number in span.attributes:
        own: Floats = np.ones((1, number))
        if len(keys) == 1:
            (key,) = keys
            for test in asked.tests:
                if key in test.keys:
                    own = own * np.isin(np.arange(number), list(truth[test]))
            if key in asked.groups:
                at = [place[asked.groups.index(key)] for place in places]
                own = own * (np.arange(number) == np.array(at)[:, None])
        queries.append(own)
    found = load(raw).variances(queries)
    return (
        None if found is None else [float(e) for e in np.broadcast_to(np.sqrt(found), len(places))]
    )
