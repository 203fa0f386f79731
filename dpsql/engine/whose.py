"""Say who may declare what an error asks to be declared: the owner, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpsql.engine.services import Services
    from dpsql.errors import DpsqlError

_OWNERS = """
select distinct quote_ident(pg_get_userbyid(c.relowner)) as name
from unnest($1::text[]) as u(name) join pg_class as c on c.oid = to_regclass(u.name)
where not (pg_has_role(dp.caller(), c.relowner, 'usage') and dp.caller_administers())
order by 1
"""


def address(error: DpsqlError, services: Services) -> None:
    """Begin a hint that declares domains with who may do so, where the caller may not."""
    if not error.declares:
        return
    names = [("text[]", list(error.declares))]
    owners = [str(row[0]) for row in services.database.execute(_OWNERS, names)]
    if owners:
        whose = "owner" if len(owners) == 1 else "owners"
        error.hint = f"The {whose} ({', '.join(owners)}) can declare it: {error.hint}"
