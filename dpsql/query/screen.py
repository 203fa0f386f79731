"""First look at ``dp.analyze``'s facts: function by function, before any tree is read.

The expression builder permits by signature; this permits by OID, on the server's own
list of everything that could be called.  Both must agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from dpsql.errors import SyntaxInvalid
from dpsql.query import functions, refusals
from dpsql.query.aggregates import NAMES
from dpsql.query.catalog import Catalog, Function
from dpsql.query.lexer import tokenize

# Stable functions of released values: they read settings, no relation and no file.
_STABLE_OUTPUT = frozenset(
    [
        "to_char",
        "date_trunc",
        "date_part",
        "extract",
        "timezone",
        "concat",
        "concat_ws",
        "now",
        "transaction_timestamp",
        "statement_timestamp",
        "age",
    ]
)
_OWN = frozenset(
    (*((name, "a") for name in NAMES), ("dp_interval_low", "f"), ("dp_interval_high", "f"))
)
_FORBIDDEN_OUTPUT = frozenset(
    ("repeat", "lpad", "rpad", "format")
)  # gigabytes from a short statement

#: What dp.analyze calls arguments that disagree about the collation.
INDETERMINATE = "indeterminate collation"


def aggregate_names(analysis: Mapping[str, Any], catalog: Catalog) -> frozenset[str]:
    """Name the aggregates that a statement calls, apart from the extension's."""
    allowed = functions.allowed_oids()
    facts = (catalog.function(oid) for oid in analysis.get("functions", ()) if oid not in allowed)
    return frozenset(f.name for f in facts if f and f.kind == "a" and f.schema == "pg_catalog")


def screen(
    analysis: Mapping[str, Any], catalog: Catalog, own: frozenset[str] = frozenset()
) -> None:
    """Refuse functions, commands and collations that nothing can allow.

    ``own`` names functions of the schema ``dp`` that this kind of statement may call.

    Raises
    ------
    FunctionNotAllowed
        For a function that is neither in the allow-list nor harmless on released values.
    """
    if analysis.get("command", "SELECT") != "SELECT":
        raise SyntaxInvalid("the text is not one SELECT statement")
    allowed = functions.allowed_oids()
    for oid in analysis.get("functions", ()):
        if oid in allowed:
            continue
        facts = catalog.function(oid)
        if facts is None:
            raise functions.not_allowed("an unknown function", None)
        if facts.schema == "public" and (facts.name, facts.kind) in _OWN:
            continue
        if facts.schema == "dp" and facts.name in own:
            continue
        if facts.kind == "a":
            refusals.refuse("other_aggregate")
        if facts.kind == "w":
            refusals.refuse("window")
        if not _harmless(facts):
            place = _place(str(analysis["sql"]), facts.name)
            raise functions.not_allowed(
                f"function {facts.schema}.{facts.name}", place, where="a private query"
            )
    if INDETERMINATE in analysis.get("constructs", ()):
        refusals.refuse("indeterminate_collation")
    collations = [oid for oid in analysis.get("collations", ()) if oid not in (0, 100, 950, 951)]
    if collations and not catalog.deterministic(collations):
        raise functions.not_allowed("a nondeterministic collation", None)


def _place(sql: str, name: str) -> int | None:
    """Find the first call of a function by its name, which is how it was deparsed."""
    tokens = tokenize(sql)
    for token, following in pairwise(tokens):
        if token.text == name and token.kind in ("word", "quoted") and following.text == "(":
            return token.start + 1
    return None


def _harmless(facts: Function) -> bool:
    """Tell whether a function can only compute: built in, and immutable or known."""
    if facts.schema != "pg_catalog" or facts.language != "internal" or facts.returns_set:
        return False
    if facts.kind != "f" or facts.name in _FORBIDDEN_OUTPUT:
        return False
    return facts.volatility == "i" or (facts.volatility == "s" and facts.name in _STABLE_OUTPUT)
