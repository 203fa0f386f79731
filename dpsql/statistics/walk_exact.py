"""What walks start from and are replaced by: groups of the most rows, and groups counted exactly.

Values travel as parameters here too (``walk_sql``).
"""

from __future__ import annotations

from dpsql.model import JoinQuery
from dpsql.query.places import is_cut
from dpsql.query.source_sql import all_sql, of
from dpsql.sqltree import cast, cte, parameter, render, sql, table, unnest, with_
from dpsql.statistics.chains import Chain
from dpsql.statistics.walk_parts import groups_of, rows_sql, same_sql, sent_sql, typed_starts


def forward_sql(query: JoinQuery, chain: Chain) -> str:
    """Write the statement that counts the largest group exactly among given starts.

    It follows *all* matches of the starts, summed up as early as possible; parameters are one
    ``text[]`` for each attribute of ``chain.start``; the only stretch is all of the chain.
    """
    boundary = chain.stretches[0].boundary
    arrays = [cast(parameter(k + 1), "text[]") for k in range(len(chain.start))]
    first = sql(
        "SELECT DISTINCT :starts, 1::numeric AS n FROM :given",
        starts=typed_starts(query, "s", chain.start),
        given=unnest(arrays, "s", [f"s{a}" for a in chain.start]),
    )
    parts = [cte("x0", first)]
    known = frozenset(chain.start)
    pending = [p for p in query.predicates if chain.stretches[0].applies(p)]
    for n, step in enumerate(chain.steps, 1):
        own = query.occurrences[step.occurrence].attributes
        known |= own
        now = [p for p in pending if p.attributes <= known]
        pending = [p for p in pending if p not in now]
        needed = set(boundary.attributes).union(*(p.attributes for p in pending))
        for later in chain.steps[n:]:
            needed |= query.occurrences[later.occurrence].attributes
        before = table(f"x{n - 1}", "x")
        joined = sql(
            "SELECT :before, :found, x.n FROM :source JOIN :rows AS r ON :same",
            before=of("x", sorted(known - own | frozenset(step.fixed))),
            found=of("r", sorted(own - frozenset(step.fixed))),
            source=before,
            rows=rows_sql(
                query,
                step.occurrence,
                sorted(own),
                sent=sent_sql(query, step, before, sql("true")),
            ),
            same=same_sql("x", "r", step.fixed) or sql("true"),
        )
        kept = of("", sorted(known & needed))
        known &= needed
        summed = sql(
            "SELECT :kept, sum(n) AS n FROM :joined AS j WHERE :tests GROUP BY :kept",
            kept=kept,
            joined=joined,
            tests=all_sql(now),
        )
        parts.append(cte(f"x{n}", summed))
    largest = sql("SELECT max(n)::text AS n FROM :last", last=table(f"x{len(chain.steps)}"))
    return render(with_(parts, largest))


def groups_sql(query: JoinQuery, chain: Chain) -> str:
    """Write the statement that lists the starts of most rows in the first relation.

    Parameters ``$1`` and ``$2``: only with more rows than this, and at most so many.
    """
    first = chain.steps[0].occurrence
    if is_cut(query.occurrences[first]):
        rows, total = groups_of(query, first, chain.start), sql("sum(n)::bigint")
    else:
        rows, total = rows_sql(query, first, chain.start), sql("count(*)")
    keys = of("", chain.start)
    statement = sql(
        "SELECT ARRAY[:texts] AS keys, :total AS n FROM :rows AS r GROUP BY :keys"
        " HAVING :total > $1::bigint ORDER BY :total DESC LIMIT $2::bigint",
        texts=[cast(key, "text") for key in keys],
        total=total,
        rows=rows,
        keys=keys,
    )
    return render(statement)
