"""What a CHECK constraint of comparisons with constants lets an integer column be."""

from __future__ import annotations

from dpsql.errors import DpsqlError
from dpsql.query.parse import parse_expression
from dpsql.query.syntax import Node
from dpsql.query.types import INTEGERS

#: The same comparison with its sides exchanged.
_TURNED = {">=": "<=", "<=": ">=", ">": "<", "<": ">"}


def allowed(column: str, expression: str) -> tuple[int | None, int | None]:
    """Read the first and the last value that a constraint lets a column have, besides NULL.

    It is one comparison of the column with an integer by ``>= > <= <``, either side first, or
    several that AND joins; of anything else nothing is known.  An operator without a schema is
    PostgreSQL's: one of somebody else is written with its schema, which the reader refuses.

    Parameters
    ----------
    column : str
        Its name, not quoted.
    expression : str
        As ``pg_get_expr`` writes it with pg_catalog alone in the path.

    Returns
    -------
    tuple of (int or None, int or None)
        ``None``: no such end.
    """
    try:
        node = parse_expression(expression)
    except DpsqlError:
        return None, None
    lows: list[int] = []
    highs: list[int] = []
    for part in node.args if node.kind == "and" else (node,):
        found = _compared(column, part)
        if found is None:
            return None, None
        operator, number = found
        if operator in (">=", ">"):
            lows.append(number + (operator == ">"))
        else:
            highs.append(number - (operator == "<"))
    return max(lows, default=None), min(highs, default=None)


def _compared(column: str, node: Node) -> tuple[str, int] | None:
    """Read ``column operator number``."""
    if node.kind != "op" or node.value not in _TURNED or len(node.args) != 2:
        return None
    operator = str(node.value)
    left, right = node.args
    if left.kind == "const":
        left, right, operator = right, left, _TURNED[operator]
    if (left.kind, left.value) != ("name", (column,)) or right.kind != "const":
        return None
    if right.type not in INTEGERS or right.value is None:
        return None
    try:
        return operator, int(str(right.value))
    except ValueError:
        return None
