"""Shards: a coordinator and other databases of the same throw-away server, through postgres_fdw."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.server.in_service import in_service

#: Who reads the shards, on the shards.
READER = "shard_reader"
#: Who writes to them through the coordinator.
WRITER = "shard_writer"
ROLES = f"""
do $$ begin
  if to_regrole('{READER}') is null then create role {READER} login; end if;
  if to_regrole('{WRITER}') is null then create role {WRITER} login; end if;
end $$
"""
# the socket asks nobody for a password, which PostgreSQL allows to mappings of a superuser's only
SERVER = """
create server shard{number} foreign data wrapper postgres_fdw
  options (host '{host}', port '{port}', dbname '{database}', async_capable 'true');
create user mapping for dp_executor server shard{number}
  options (user '{reader}', password_required 'false');
create user mapping for owner1 server shard{number}
  options (user '{writer}', password_required 'false');
create user mapping for postgres server shard{number} options (user '{writer}');
grant usage on foreign server shard{number} to owner1;
"""
#: No limit that a busy machine comes to: what stalls for a moment is no server that hangs.
PATIENT = "alter database {name} set dp.shards_timeout = '60s'"
#: Visits of a shard that take long to read, a hundred 50 seconds, and those that do not.
SLOW = f"""
create function slowly(bigint) returns bigint language plpgsql volatile as
  $$ begin perform pg_sleep(0.5); return $1; end $$;
alter table visit rename to kept;
create view visit as select v_id, v_who, slowly(v_amount) as v_amount from kept;
grant select on visit to {READER};
"""
PLAIN = "drop view visit; drop function slowly(bigint); alter table kept rename to visit"
#: No unit is cut off.
UNCUT = in_service("""
from dpsql.core.mechanisms import truncation
truncation.bounds = lambda largest, least=1: (10**9,)
""")


@dataclass(slots=True)
class Shards:
    """``near`` holds dpsql and the partitioned tables, ``far`` the rows; shard i is ``shard<i>``."""

    near: Any
    far: list[Any]

    def table(
        self,
        name: str,
        columns: str,
        key: str,
        *,
        bounds: Sequence[str] = (),
        method: str = "hash",
        local: Sequence[int] = (),
        declare: str = "",
    ) -> None:
        """Make a partitioned table of owner1 with a part on each shard, the parts ``local`` here.

        Parts are ``<name>_<i>`` here and ``<name>`` on the shards.  ``bounds`` are what stands
        behind VALUES, or ``default``; of hash partitions they follow from their number.  ``declare`` is run in
        the end by the owner.
        """
        count = len(bounds) or len(self.far)
        made = [f"create table {name} ({columns}) partition by {method} ({key})"]
        for i in range(count):
            bound = bounds[i] if bounds else f"with (modulus {count}, remainder {i})"
            rows = bound if bound == "default" else f"for values {bound}"
            part = f"{name}_{i} partition of {name} {rows}"
            if i in local:
                made.append(f"create table {part}")
                made.append(f"alter table {name}_{i} owner to owner1")
                continue
            place = i % len(self.far)
            far = name if i < len(self.far) else f"{name}_{i}"
            self.far[place].sql(
                f"create table {far} ({columns}); grant select on {far} to {READER};"
                f" grant all on {far} to {WRITER}"
            )
            made.append(
                f"create foreign table {part} server shard{place} options (table_name '{far}')"
            )
            made.append(f"alter foreign table {name}_{i} owner to owner1")
        self.near.sql("; ".join([*made, f"alter table {name} owner to owner1"]))
        if declare:
            self.near.sql(declare, user="owner1")


@contextmanager
def sharded(server: Any, count: int = 3, other: Any = None) -> Iterator[Shards]:
    """Make a coordinator and shards without tables; drop them in the end.

    The last shard is on the server ``other``, if there is one.
    """
    near = server.create_database()
    places = [server] * (count - 1) + [other or server]
    far = [place.create_database() for place in places]
    near.sql(ROLES)
    far[-1].sql(ROLES)
    near.sql("create extension postgres_fdw; grant dp_owner to owner1")
    near.sql(PATIENT.format(name=near.name))
    for number, database in enumerate(far):
        near.sql(
            SERVER.format(
                number=number,
                host=database.cluster.socket,
                port=5432,
                database=database.name,
                reader=READER,
                writer=WRITER,
            )
        )
    try:
        yield Shards(near, far)
    finally:
        for place, database in zip((server, *places), (near, *far), strict=True):
            place.drop_database(database)


def visits(shards: Shards, rows: int) -> None:
    """Protect so many visits, of 50 people, in parts on the shards; alice may ask."""
    shards.table(
        "visit",
        "v_id int not null, v_who int, v_amount bigint",
        "v_id",
        declare="select dp.protect('visit'), dp.declare_shards('visit', written => 'coordinator');"
        " select dp.grant_budget('alice', 1e6, 1e-3), dp.set_failure_limit('visit', 1000)",
    )
    shards.near.sql(
        f"insert into visit select i, i % 50, i from generate_series(1, {rows}) i", user="owner1"
    )
