"""Ways to ask a question: in a transaction, a function, a cursor, as another role."""

from __future__ import annotations

from dataclasses import dataclass

from tests.server.hostile.shapes import quoted
from tests.server.hostile.world import OTHER


@dataclass(frozen=True, slots=True)
class Way:
    """Preparing statements and the asking one; ``{q}`` is the question, ``{s}`` its literal, ``{n}`` its number."""

    name: str
    ask: str = "{q}"
    before: tuple[str, ...] = ()
    #: Whether it works for any statement, not only SELECT.
    any: bool = False
    transaction: bool = False

    def of(self, template: str, question: str, number: int) -> str:
        numbered = template.replace("{n}", str(number))
        return numbered.replace("{q}", question).replace("{s}", quoted(question))


PLAIN = Way("a statement", any=True)
_SELECTED = "do $way$ declare found record; begin for found in {q} loop raise notice 'row %', row_to_json(found); end loop; end $way$"
WAYS = [
    PLAIN,
    Way("a transaction", "{q}", ("begin",), any=True, transaction=True),
    Way("a savepoint", "{q}", ("begin", "savepoint one"), transaction=True),
    Way("serializable", "{q}", ("begin isolation level serializable",), transaction=True),
    Way("read only", "{q}", ("begin read only",), transaction=True),
    Way("another role", "{q}", (f"set role {OTHER}",), any=True),
    Way("prepared", "execute asked{n}", ("prepare asked{n} as {q}",)),
    Way("a cursor", "fetch all from asked{n}", ("begin", "declare asked{n} cursor for {q}"), transaction=True),
    Way("a cursor that stays", "fetch all from asked{n}", ("declare asked{n} cursor with hold for {q}",)),
    Way("a block", _SELECTED),
    Way("a block that executes", "do $way$ begin execute {s}; end $way$", any=True),
    Way("a block that catches", "do $way$ begin execute {s}; exception when others then raise notice '% % %', sqlstate, sqlerrm, 1; end $way$"),
    Way("a function", "select * from pg_temp.asked{n}()", ("create function pg_temp.asked{n}() returns setof json language plpgsql as $way$ declare found record; begin for found in {q} loop return next row_to_json(found); end loop; end $way$",)),
    Way("a table", "create temp table answered{n} as {q}"),
    Way("a view", "select * from asked{n}", ("create temp view asked{n} as {q}",)),
    Way("EXPLAIN ANALYZE", "explain (analyze, costs off, timing off, summary off) {q}"),
    Way("copied", "copy ({q}) to stdout"),
]  # fmt: skip
