"""The list of methods, and the choice of the one that answers an aggregate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.engine.methods.base import Method, Terms
from dpsql.engine.methods.multi_unit import MultiUnitMethod
from dpsql.engine.methods.public import PublicMethod
from dpsql.engine.methods.rows import RowMethod
from dpsql.engine.methods.units import UnitMethod
from dpsql.errors import InternalError

if TYPE_CHECKING:
    from dpsql.model import JoinQuery
    from dpsql.ports import Database

#: The first that answers an aggregate is taken.
METHODS = (PublicMethod, MultiUnitMethod, UnitMethod, RowMethod)


def quote(query: JoinQuery, terms: Terms, database: Database) -> Method:
    """Quote an aggregate by its method, from public facts."""
    for method in METHODS:
        if method.answers(query, terms.groups):
            return method.quote(query, terms, database)
    raise InternalError("no method answers an aggregate")
