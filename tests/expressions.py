"""SQL as the expression that a record holds."""

from __future__ import annotations

import re
from string import ascii_lowercase

from dpsql.expression import Expr
from dpsql.query.ir import column, template
from dpsql.query.lexer import Token, tokenize


def parsed(sql: str) -> Expr:
    """Read columns ``r<i>.<name>`` and attributes ``a<j>``; the rest stays as it is written."""
    args: list[Expr] = []
    text, at, waiting = "", 0, [*reversed(tokenize(sql))]
    while waiting:
        token = waiting.pop()
        text += sql[at : token.start]
        found = _leaf(token, waiting)
        if found is None:
            text += sql[token.start : token.end]
            at = token.end
        else:
            leaf, at = found
            text += f":{ascii_lowercase[len(args)]}"
            args.append(leaf)
    if text == ":a":
        return args[0]
    return template("", text, *args)


def _leaf(token: Token, waiting: list[Token]) -> tuple[Expr, int] | None:
    """Return the column or attribute that begins here, and where it ends."""
    if token.kind != "word":
        return None
    if re.fullmatch(r"r\d+", token.text) and waiting[-1].text == ".":
        waiting.pop()
        name = waiting.pop()
        return column(int(token.text[1:]), name.text, "", "", not_null=False), name.end
    if re.fullmatch(r"a\d+", token.text):
        return Expr("attribute", "", data=int(token.text[1:])), token.end
    return None
