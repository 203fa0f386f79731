"""Tokens of deparsed statements.

The text comes from PostgreSQL's own ``ruleutils.c``, which writes a small and
regular part of SQL's lexical grammar: no comments, no dollar quotes, no ``E''``
strings (``simple_quote_literal`` never uses them), ``standard_conforming_strings``
is on.  Anything else is refused.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from dpsql.errors import SyntaxInvalid

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<word>[^\W\d][\w$]*)
    | (?P<punct>::|:=|=>|[(),;.\[\]:])
    | (?P<string>'(?:[^']|'')*')
    | (?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)
    | (?P<quoted>"(?:[^"]|"")+")
    | (?P<parameter>\$\d+)
    | (?P<operator>[-+*/<>=~!@\#%^&|`?]+)
    )""",
    re.VERBOSE,
)


_QUOTES = ("'", '"', "&'", '&"')


class Token(NamedTuple):
    """``kind`` is a group of the token pattern or ``end``; ``text`` is the value without quotes.

    ``keyword`` is an unquoted word in upper case, or a punctuation mark, else empty.
    """

    kind: str
    text: str
    start: int
    end: int
    keyword: str = ""


def tokenize(sql: str) -> list[Token]:
    """Split a deparsed statement; positions are 0-based offsets.

    Raises
    ------
    SyntaxInvalid
        On text that PostgreSQL's deparser does not write.
    """
    tokens: list[Token] = []
    at = 0
    stop = len(sql.rstrip())
    for match in _TOKEN.finditer(sql, 0, stop):
        if match.start() != at:
            break
        kind = match.lastgroup or ""
        start, at = match.span(match.lastindex or 0)
        text = keyword = sql[start:at]
        if kind == "word":
            if sql.startswith(_QUOTES, at):
                # E'...', B'...', U&"..." and their kin change what the quotes mean
                raise SyntaxInvalid("unexpected string form in statement", position=start + 1)
            keyword = text.upper()
        elif kind != "punct":
            keyword = ""
            if kind == "string":
                text = text[1:-1].replace("''", "'")
            elif kind == "quoted":
                text = text[1:-1].replace('""', '"')
        tokens.append(Token(kind, text, start, at, keyword))
    if at < stop:
        raise SyntaxInvalid("unexpected character in statement", position=at + 1)
    tokens.append(Token("end", "", stop, stop))
    return tokens
