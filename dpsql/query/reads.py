"""What rows a statement counts, and by which keys: what questions and releases are compared by."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from sqlglot import exp

from dpsql.query.aggregates import is_aggregate
from dpsql.query.asked import Reads
from dpsql.query.graph import not_null
from dpsql.query.ir import TRUE, Expr
from dpsql.query.nodes import asked
from dpsql.query.others import domain_with_other, mapped, others_of
from dpsql.relation import Relation
from dpsql.sqltree.nodes import Call


def question_reads(
    query: exp.Select,
    relations: Sequence[Relation],
    conjuncts: Iterable[Expr],
    keys: Iterable[Expr],
) -> Reads | None:
    """Return what a question reads, ``None`` where it counts anything but plain rows.

    Nothing is normalised yet: only a question that a release may answer needs it.
    """
    for node in asked(query):
        if is_aggregate(node) and not counts_rows(node):
            return None
    own = tuple(keys)
    return Reads(
        tuple(r.oid for r in relations),
        frozenset(conjuncts),
        own,
        tuple(declared(key, relations) for key in own),
    )


def counts_rows(call: Call) -> bool:
    """Tell whether an aggregate is ``dp_count(*)`` and nothing else."""
    return call.name == "dp_count" and not call.expressions and not call.flags - {"star"}


def declared(key: Expr, relations: Sequence[Relation]) -> str | None:
    """Name the declared lists of values of the columns that a key reads: equal for equal lists.

    ``None`` where there are none: then every row has one of the levels of the key.
    """
    others = others_of(key)
    if others is not None:
        domain = domain_with_other(others.column, relations)
        if domain is not None and key == mapped(others.column, relations):
            whole = domain.includes_null or not_null(others.column) == TRUE
            return None if whole else "not null"
    found = sorted(
        (name, repr(domain.values), domain.includes_null)
        for occurrence, name in key.columns()
        if relations[occurrence].private
        for domain in relations[occurrence].domains
        if domain.listed and domain.other is None and domain.column == name
    )
    return hashlib.sha256(repr(found).encode()).hexdigest()[:32] if found else None
