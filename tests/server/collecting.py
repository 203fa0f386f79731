"""Statistics of the shop: who collects them, and what reads them as the engine does."""

from __future__ import annotations

import json
from typing import Any

from dpsql.core import stale
from dpsql.model import JoinQuery
from dpsql.statistics.stored import Stored, load
from tests.direct import Direct

JOIN = """select dp_count(*) from client join purchase on p_client = c_id
  join region on r_id = c_region where c_kind <> 'z' and r_name <> 'z'"""
WIDE = """select dp_count(*) from purchase a join purchase b on a.p_day = b.p_day
  join client on c_id = b.p_client join region on r_id = c_region
  where c_kind <> 'z' and r_name <> 'z'"""


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
    from dpsql.engine.facts import Facts
    from dpsql.server.catalog import SpiCatalog

    return SpiCatalog(Direct(connection), Facts())  # type: ignore[arg-type]
