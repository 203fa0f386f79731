"""Put parameter values into a deparsed statement."""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.errors import UnsupportedConstruct
from dpsql.query.expression_parser import ExpressionParser
from dpsql.query.lexer import tokenize
from dpsql.query.refusals import refuse


def bind(sql: str, parameters: Sequence[str | None] | None) -> str:
    """Replace ``$i`` by ``parameters[i - 1]``, a quoted literal with its type.

    Literals come from ``dp.parameters``; each must itself be one constant
    (``'...'::type`` or ``NULL::type``), whatever its text holds.

    Raises
    ------
    UnsupportedConstruct
        If a parameter has no value, or its text is not one constant.
    """
    pieces = []
    at = 0
    for token in tokenize(sql):
        if token.kind != "parameter":
            continue
        number = int(token.text[1:])
        value = parameters[number - 1] if parameters and 0 < number <= len(parameters) else None
        if value is None:
            refuse("parameter", token.start + 1)
        _require_constant(value)
        # no parentheses: a constant with its type is a primary expression everywhere
        pieces += [sql[at : token.start], value]
        at = token.end
    return "".join(pieces) + sql[at:]


def _require_constant(text: str) -> None:
    parser = ExpressionParser(tokenize(text))
    node = parser.expression()
    if node.kind != "const" or not node.type or not node.flags or parser.peek.kind != "end":
        raise UnsupportedConstruct("a parameter's value is not one constant")
