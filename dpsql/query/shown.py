"""Output columns and the perturbed numbers that they show.

Reads the post-processing statement of a `dpsql.model.Question`, which is all of released values:
which numbers ``a<j>`` each output column uses, and how an interval around a number becomes one
around the column.  A column has an interval if it is a monotone function of one number, or of one
mean as `dpsql.query.measures` writes it: the column's values at the ends of its interval are the
ends.  Casts to numbers, ``+ - * /``
with constants, rounding, GREATEST and LEAST are monotone; anything else is not looked into.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from dpsql.errors import DpsqlError
from dpsql.query.lexer import Token, tokenize
from dpsql.query.measures import MEAN, mean_ends
from dpsql.query.parse import parse
from dpsql.query.syntax import Node

_NUMBER = re.compile(r"[alhpq](\d+)")
_ATOM = re.compile(r"a\d+|mean\d+_\d+")
#: The tokens of a mean: its sum and its count are numbers.
_TOKENS = [t.text for t in tokenize(MEAN.format("SUM", "COUNT"))[:-1]]
_LENGTH = len(_TOKENS)
_MEAN = re.compile(re.sub("SUM|COUNT", r"a(\\d+)", re.escape(" ".join(_TOKENS))))
_NUMERIC = re.compile(
    r"smallint|integer|bigint|real|double precision|numeric(\(\d+(,\s*-?\d+)?\))?"
)
_RISING = frozenset(("round", "floor", "ceil", "ceiling", "trunc"))
_EXTREMES = frozenset(("greatest", "least"))


@dataclass(frozen=True, slots=True)
class Shown:
    """One output column.

    Attributes
    ----------
    numbers : tuple of int
        The numbers ``a<j>`` (or ends of their intervals) that it uses, sorted.
    bare_ends : bool
        Whether it uses nothing but ends of intervals.
    low, high : str or None
        SQL over ``noisy`` for the ends of its interval, ``None`` if it has none.
    """

    numbers: tuple[int, ...]
    bare_ends: bool = False
    low: str | None = None
    high: str | None = None

    @property
    def is_mean(self) -> bool:
        """Whether it has an interval around a mean."""
        return self.low is not None and len(self.numbers) == 2


def shown_columns(post_sql: str) -> list[Shown]:
    """Describe the output columns of a post-processing statement."""
    return [_column(post_sql, target) for target in _targets(post_sql)[0]]


def column_texts(post_sql: str) -> list[str]:
    """Return the texts of the output columns of a post-processing statement."""
    return [post_sql[target[0].start : target[-1].end] for target in _targets(post_sql)[0]]


def with_columns(post_sql: str, columns: list[str]) -> str:
    """Append expressions to the output columns, as ``c<n + 1>`` and so on."""
    targets, end = _targets(post_sql)
    names = [f"{sql} AS c{len(targets) + k}" for k, sql in enumerate(columns, 1)]
    return ", ".join([post_sql[:end].rstrip(), *names]) + " " + post_sql[end:].lstrip()


def _targets(post_sql: str) -> tuple[list[list[Token]], int]:
    """Split the select list; also return where it ends."""
    tokens = tokenize(post_sql)
    targets: list[list[Token]] = [[]]
    depth = 0
    for token in tokens[1:]:
        if token.kind == "punct" and token.text in "()[]":
            depth += 1 if token.text in "([" else -1
        if depth == 0 and token.kind == "word" and token.text == "FROM":
            return targets, token.start
        if depth == 0 and token.kind == "word" and token.text == "DISTINCT" and targets == [[]]:
            continue
        if depth == 0 and token.kind == "punct" and token.text == ",":
            targets.append([])
        else:
            targets[-1].append(token)
    return targets, len(post_sql)


def _numbers(tokens: list[Token]) -> list[int]:
    found = (_NUMBER.fullmatch(t.text) for t in tokens if t.kind == "word")
    return [int(match[1]) for match in found if match]


def _column(post_sql: str, target: list[Token]) -> Shown:
    """Read one ``CAST(expression AS type) AS c<i>``."""
    numbers = tuple(sorted(set(_numbers(target))))
    inner = target[2:-3]  # between the parentheses
    depth, split = 0, 0
    for at, token in enumerate(inner):
        if token.kind == "punct" and token.text in "()[]":
            depth += 1 if token.text in "([" else -1
        if depth == 0 and token.kind == "word" and token.text == "AS":
            split = at
    if not any(t.text.startswith("a") for t in target if _numbers([t])):
        return Shown(numbers, bare_ends=bool(numbers))
    expression, type_ = _collapsed(inner[:split]), inner[split + 1 :]
    atoms = {t.text for t in expression if t.kind == "word" and _ATOM.fullmatch(t.text)}
    if len(atoms) != 1 or split == 0:
        return Shown(numbers)
    (atom,) = atoms
    written = post_sql[type_[0].start : type_[-1].end].strip()
    if not _NUMERIC.fullmatch(written):
        return Shown(numbers)
    direction = _direction_of(_replaced(post_sql, expression, atom, atom))
    if direction not in (1, -1):
        return Shown(numbers)
    ends = [
        f"CAST({_replaced(post_sql, expression, atom, end)} AS {written})" for end in _ends(atom)
    ]
    low, high = ends if direction == 1 else ends[::-1]
    return Shown(numbers, low=low, high=high)


def _collapsed(tokens: list[Token]) -> list[Token]:
    """Make every mean one word that names its sum and its count."""
    found = []
    at = 0
    while at < len(tokens):
        run = tokens[at : at + _LENGTH]
        mean = _MEAN.fullmatch(" ".join(t.text for t in run if t.kind != "string"))
        if mean:
            name = f"mean{mean[1]}_{mean[2]}"
            found.append(Token("word", name, run[0].start, run[-1].end))
            at += _LENGTH
        else:
            found.append(tokens[at])
            at += 1
    return found


def _ends(atom: str) -> tuple[str, str]:
    """Write the ends of the interval around a number or a mean."""
    first, *second = (int(n) for n in re.findall(r"\d+", atom))
    return mean_ends(first, second[0]) if second else (f"l{first}", f"h{first}")


def _replaced(post_sql: str, tokens: list[Token], atom: str, end: str) -> str:
    """Write the expression with the end of an interval in place of the atom."""
    pieces = []
    at = tokens[0].start
    for token in tokens:
        here = token.kind == "word" and token.text == atom
        pieces.append(post_sql[at : token.start])
        pieces.append(end if here else post_sql[token.start : token.end])
        at = token.end
    return "".join(pieces)


def _direction_of(text: str) -> int | None:
    try:
        return _direction(parse(f"SELECT {text} AS c").targets[0].expression)
    except DpsqlError:
        return None  # a form that nobody needs intervals of


def _direction(node: Node) -> int | None:
    """1: grows with the number, -1: falls, 0: does not depend on it, ``None``: unknown."""
    if node.kind == "name":
        name = node.value[-1] if isinstance(node.value, tuple) else ""
        return 1 if _ATOM.fullmatch(name) else None
    if node.kind == "const":
        return 0
    inner = [_direction(argument) for argument in node.args]
    if node.kind == "cast":
        return inner[0] if inner[0] == 0 or _NUMERIC.fullmatch(str(node.value)) else None
    if node.kind == "op":
        return _operator(node, inner)
    if node.kind == "call":
        schema, name = node.pair()
        if schema not in ("", "pg_catalog"):
            return None
        if name in _RISING and all(d == 0 for d in inner[1:]):
            return inner[0]
        if name in _EXTREMES:
            return _joined(inner)
    return None


def _operator(node: Node, inner: list[int | None]) -> int | None:
    if len(inner) == 1:
        return {"-": _turned(inner[0]), "+": inner[0]}.get(str(node.value))
    left, right = inner
    if node.value == "+":
        return _joined([left, right])
    if node.value == "-":
        return _joined([left, _turned(right)])
    if node.value == "*" and left == 0:
        return _scaled(right, node.args[0])
    if node.value in ("*", "/") and right == 0:
        return _scaled(left, node.args[1])
    return None


def _turned(direction: int | None) -> int | None:
    return None if direction is None else -direction


def _joined(directions: list[int | None]) -> int | None:
    """Return the direction of a sum or an extreme."""
    found = {d for d in directions if d != 0}
    return found.pop() if len(found) == 1 else (None if found else 0)


def _scaled(direction: int | None, factor: Node) -> int | None:
    """Return the direction of a product with a constant."""
    while factor.kind == "cast":
        factor = factor.args[0]
    negative = False
    while factor.kind == "op" and factor.value == "-" and len(factor.args) == 1:
        factor, negative = factor.args[0], not negative
        while factor.kind == "cast":
            factor = factor.args[0]
    if factor.kind != "const" or direction is None:
        return None
    try:
        value = Decimal(str(factor.value))
    except InvalidOperation:
        return None
    if not value.is_finite() or value == 0:
        return None
    return -direction if (value < 0) != negative else direction
