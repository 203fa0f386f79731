"""Read the caller's settings and role; both are user input and are checked."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, cast

from dpsql.engine.request import Role, Settings

if TYPE_CHECKING:
    from dpsql.server.spi import SpiDatabase

_NAMES = (
    "epsilon",
    "delta",
    "method",
    "mechanism",
    "max_epsilon_per_query",
    "fresh",
    "confidence",
    "sampling_rate",
    "sampling_filter",
    "statistics",
    "max_contribution",
    "max_groups_contributed",
    "max_rows_contributed",
    "min_frequency",
)
# current_user is the definer here, and names can have changed hands: dp.caller is by OID
_ROLE = (
    "select r.oid::int8 as oid, r.rolname::text as name"
    " from pg_catalog.pg_roles as r where r.oid = dp.caller() and $1 = 1"
)
_SETTINGS = """
select r.oid::int8 as oid, r.rolname::text as name,
  array(select pg_catalog.current_setting('dp.' || n.name, true)
          from unnest($1) with ordinality as n(name, place) order by n.place) as settings
  from pg_catalog.pg_roles as r where r.oid = dp.caller()
"""


def read(database: SpiDatabase, *, capped: bool = True) -> tuple[Role, Settings]:
    """Return who asks and with which settings, as of now.

    Not ``capped``: for a call that may say another epsilon than ``dp.epsilon``.
    """
    ((oid, name, texts),) = database.execute(_SETTINGS, [("text[]", list(_NAMES))])
    listed = cast("list[str | None]", texts)
    settings = _settings(capped, *listed)
    return Role(int(str(oid)), str(name)), settings


def given(database: SpiDatabase, texts: str) -> tuple[Role, Settings]:
    """Return who asks and with which settings, as another backend says (sql/hook/service.c)."""
    oid, name = database.execute(_ROLE, (("int4", 1),))[0]
    return Role(int(str(oid)), str(name)), _settings(True, *texts.split("\x1f")[:-1])


def said(database: SpiDatabase, texts: Mapping[str, str]) -> tuple[Role, Settings]:
    """Return who asks, with settings that the engine wrote (`Settings.texts`)."""
    oid, name = database.execute(_ROLE, (("int4", 1),))[0]
    return Role(int(str(oid)), str(name)), Settings.from_texts(texts, capped=False)


@lru_cache(maxsize=16)
def _settings(capped: bool, *texts: str | None) -> Settings:
    """Check them: a function of the texts alone, which most sessions never change."""
    return Settings.from_texts(dict(zip(_NAMES, texts, strict=True)), capped=capped)
