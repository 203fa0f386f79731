"""Another library of the server may have functions of the same names as ours."""

from __future__ import annotations

from typing import Any

from dpsql.client.cluster import LIBRARY
from tests.server.asking import refused
from tests.server.compiling import compiled

#: Says that everything is called by a function of dpsql.
OTHER = """
#include "postgres.h"
#include "fmgr.h"
PG_MODULE_MAGIC;
extern bool below_door(void);
bool
below_door(void)
{
    return true;
}
"""
#: What is for functions of dpsql only, even where a superuser calls it.
CALL = "select dp.meet_shards(array[]::oid[], array[]::oid[])"


def test_a_function_of_the_same_name_is_not_called(make_server: Any) -> None:
    """The server loads libraries into one name space, and the first one's names come first."""
    other = compiled(OTHER, "other")
    server = make_server(shared_preload_libraries=f"'{other}, {LIBRARY}'")
    with server.create_database().connect() as session:
        assert "by functions of dpsql only" in str(refused(session, CALL))
