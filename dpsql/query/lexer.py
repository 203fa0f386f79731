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
      (?P<string>'(?:[^']|'')*')
    | (?P<quoted>"(?:[^"]|"")+")
    | (?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)
    | (?P<word>[^\W\d][\w$]*)
    | (?P<parameter>\$\d+)
    | (?P<punct>::|:=|=>|[(),;.\[\]:])
    | (?P<operator>[-+*/<>=~!@\#%^&|`?]+)
    )""",
    re.VERBOSE,
)


class Token(NamedTuple):
    """``kind`` is a group of the token pattern or ``end``; ``text`` is the value without quotes."""

    kind: str
    text: str
    start: int
    end: int


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
    while at < stop:
        match = _TOKEN.match(sql, at)
        if match is None:
            raise SyntaxInvalid("unexpected character in statement", position=at + 1)
        kind = match.lastgroup or ""
        text = match[kind]
        if kind == "string":
            text = text[1:-1].replace("''", "'")
        elif kind == "quoted":
            text = text[1:-1].replace('""', '"')
        follower = sql[match.end() : match.end() + 2]
        if kind == "word" and (follower[:1] in ("'", '"') or follower in ("&'", '&"')):
            # E'...', B'...', U&"..." and their kin change what the quotes mean
            raise SyntaxInvalid(
                "unexpected string form in statement", position=match.start(kind) + 1
            )
        tokens.append(Token(kind, text, match.start(kind), match.end()))
        at = match.end()
    tokens.append(Token("end", "", stop, stop))
    return tokens
