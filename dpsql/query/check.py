"""What a CHECK constraint of comparisons with constants lets an integer column be."""

from __future__ import annotations

from sqlglot import exp

from dpsql.errors import DpsqlError
from dpsql.query.nodes import constant_of, names, operands
from dpsql.query.parse import parse_expression
from dpsql.query.types import INTEGERS
from dpsql.sqltree.nodes import Operation

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
        node = parse_expression(expression).unnest()
    except DpsqlError:
        return None, None
    lows: list[int] = []
    highs: list[int] = []
    for part in operands(node) if isinstance(node, exp.And) else (node,):
        found = _compared(column, part.unnest())
        if found is None:
            return None, None
        operator, number = found
        if operator in (">=", ">"):
            lows.append(number + (operator == ">"))
        else:
            highs.append(number - (operator == "<"))
    return max(lows, default=None), min(highs, default=None)


def _compared(column: str, node: exp.Expr) -> tuple[str, int] | None:
    """Read ``column operator number``."""
    if not isinstance(node, Operation) or node.args["operator"] not in _TURNED:
        return None
    operator = str(node.args["operator"])
    left, right = node.args.get("this"), node.expression
    if left is not None and constant_of(left):
        left, right, operator = right, left, _TURNED[operator]
    number = constant_of(right)
    if not isinstance(left, exp.Column) or names(left) != (column,) or number is None:
        return None
    if number.type not in INTEGERS or number.text is None:
        return None
    try:
        return operator, int(number.text)
    except ValueError:
        return None
