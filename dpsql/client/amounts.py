"""Numbers on the command line, exact as they are typed."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Annotated

import typer


def amount(text: str) -> Decimal:
    """Read a number; what is none is an error of usage."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise typer.BadParameter(f"{text!r} is no number") from None
    if not number.is_finite():
        raise typer.BadParameter(f"{text!r} is not finite")
    return number


Epsilon = Annotated[
    Decimal | None, typer.Option(parser=amount, metavar="NUMBER", help="privacy loss")
]
Delta = Annotated[
    Decimal | None,
    typer.Option(parser=amount, metavar="NUMBER", help="probability; the server's default without"),
]
