"""Statistics of the shop: who collects them, and what reads them as the engine does."""

from __future__ import annotations

import json
import re
from typing import Any

import psycopg
from psycopg.types.string import TextLoader

from dpsql.core import stale
from dpsql.model import JoinQuery
from dpsql.statistics.stored import Stored, load

JOIN = """select dp_count(*) from client join purchase on p_client = c_id
  join region on r_id = c_region where c_kind <> 'z' and r_name <> 'z'"""
WIDE = """select dp_count(*) from purchase a join purchase b on a.p_day = b.p_day
  join client on c_id = b.p_client join region on r_id = c_region
  where c_kind <> 'z' and r_name <> 'z'"""


class Direct:
    """`dpsql.ports.Database` over a connection to the test server."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        connection.adapters.register_loader("json", TextLoader)

    def execute(self, sql: str, parameters: Any = ()) -> list[tuple[object, ...]]:
        typed = re.sub(r"\$(\d+)", lambda m: f"{m[0]}::{parameters[int(m[1]) - 1][0]}", sql)
        cursor = psycopg.RawCursor(self.connection)
        return cursor.execute(typed, [v for _, v in parameters] or None).fetchall()

    def before_reading(self, relations: Any) -> None:
        pass

    def reads_shards(self, relations: Any) -> bool:
        """Everything is here."""
        return False

    def meet(self, relations: Any, check: Any, *, by_steps: bool = False) -> None:
        """Everything is here."""

    def at_one_moment(self, relations: Any, work: Any) -> Any:
        """Read what there is."""
        return work()

    def tick(self) -> None:
        pass


class Collector:
    """Statistics, queries and fresh counts of the shop, for its superuser."""

    def __init__(self, shop: Any) -> None:
        self.shop = shop
        self.admin = shop.connect()
        self.owner = shop.connect(user="owner1")

    def collect(self, *relations: str) -> None:
        for relation in relations:
            self.owner.execute(f"select dp.collect_statistics('{relation}')")
            self.owner.execute(f"select dp.refresh_statistics('{relation}')")

    def query(self, text: str) -> JoinQuery:
        from dpsql.query.pipeline import analyse

        (question,) = [analyse(_analysis(self.admin, text), _Catalog(self.admin))]
        return question.aggregates[0]

    def load(self, query: JoinQuery, method: str = "residual") -> Stored | None:
        needed = stale.required(query.shape(), stale.numbering(query), method)
        return load(query, needed, Direct(self.admin))


def _analysis(connection: Any, text: str) -> Any:
    return json.loads(
        connection.execute("select dp.analyze(dp.deparse(%s))", (text,)).fetchone()[0]
    )


def _Catalog(connection: Any) -> Any:
    from dpsql.server.catalog import SpiCatalog

    return SpiCatalog(Direct(connection))  # type: ignore[arg-type]
