"""Texts in conditions that no declared domain lists: probably misspelt, and paid for all the same.

Rows may have values outside of their column's domain, so such a condition is none that can be
refused.  What is told follows from the statement and from declared domains, which are public.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dpsql.query.graph import bare
from dpsql.query.ir import Expr
from dpsql.relation import Relation

_TEXTS = ("text", "character varying", "bpchar")


def unlisted(
    expressions: Iterable[Expr], relations: Sequence[Relation]
) -> tuple[tuple[str, str], ...]:
    """Name columns of protected relations with texts that they equal and their domains do not list.

    Parameters
    ----------
    expressions : iterable of Expr
        Over rows: what is anywhere in them counts.
    relations : sequence of Relation
        By occurrence.

    Returns
    -------
    tuple of (str, str)
        Column and text, in the order of the statement, each once.
    """
    found: dict[tuple[str, str], None] = {}
    for expression in expressions:
        for e in expression.walk():
            if e.kind == "in" or (e.kind == "op" and e.data in ("=", "<>")):
                found.update(dict.fromkeys(_unlisted(e, relations)))
    return tuple(found)


def _unlisted(e: Expr, relations: Sequence[Relation]) -> Iterable[tuple[str, str]]:
    parts = [bare(a) for a in e.args]
    texts = [str(a.data) for a in parts if a.kind == "const" and a.data is not None]
    for column in parts:
        if column.kind != "col" or column.type not in _TEXTS:
            continue
        occurrence, name = column.data[:2]  # type: ignore[index]
        if not relations[occurrence].private:
            continue
        # blanks at the end are none of the value's in character(n), and hardly meant elsewhere
        listed = {
            value.rstrip(" ")
            for domain in relations[occurrence].domains
            if domain.column == name and domain.listed and domain.other is None
            for value in domain.values
        }
        if listed:
            yield from ((str(name), text) for text in texts if text.rstrip(" ") not in listed)
