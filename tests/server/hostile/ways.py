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


#: A schema of the spy, and a table that is new for each question.  Answers that stayed in it would decide by
#: their length, which noise changes, how many pages it has, and so how the next statement is planned.
SCHEMA = "own"
OWN = "written{n}"
WRITTEN = (f"create temp table {OWN} (line json)", f"insert into {OWN} values ('0')")


def _trigger(when: str, kind: str = "", more: str = "") -> tuple[str, ...]:
    """Return statements that make a table whose trigger asks the question."""
    made = "create function pg_temp.fire{n}() returns trigger language plpgsql as"
    return (
        "create temp table fired{n} (i int)",
        f"{made} $way$ begin perform s from ({{q}}) as s; return null; end $way$",
        f"create {kind} trigger fire {when} on fired{{n}} {more} for each row execute function pg_temp.fire{{n}}()",
    )


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
    # outer statements that write, or that fail after the question was charged
    Way("INSERT", f"insert into {OWN} select row_to_json(s) from ({{q}}) as s", WRITTEN),
    Way("INSERT that returns", f"with new as (insert into {OWN} values ('1') returning 1) select * from new, ({{q}}) as s", WRITTEN),
    Way("MERGE", f"merge into {OWN} as t using ({{q}}) as s on false when not matched then insert values (row_to_json(s))", WRITTEN),
    Way("UPDATE", f"update {OWN} as t set line = row_to_json(s) from ({{q}}) as s", WRITTEN),
    Way("DELETE", f"delete from {OWN} as t using ({{q}}) as s", WRITTEN),
    Way("a table that fails", "create temp table answered{n} as select 1 / (s::text = '')::int from ({q}) as s"),
    Way("a statement that fails", "select 1 / (s::text = '')::int from ({q}) as s"),
    Way("a function that fails for each row", "select pg_temp.failing{n}(s::text) from ({q}) as s", ("create function pg_temp.failing{n}(text) returns int language plpgsql as $way$ begin raise exception 'no'; end $way$",)),
    Way("a function that fails after the question", "select pg_temp.failing{n}()", ("create function pg_temp.failing{n}() returns int language plpgsql as $way$ begin perform s from ({q}) as s; raise exception 'no'; end $way$",)),
    Way("a function in SQL", "select pg_temp.asked{n}()", ("create function pg_temp.asked{n}() returns bigint language sql as $way$ select count(*) from ({q}) as s $way$",)),
    Way("a block that starts again", "do $way$ begin for i in 1 .. 3 loop begin execute {s}; raise division_by_zero; exception when division_by_zero then null; end; end loop; end $way$", any=True),
    Way("a block that commits", "do $way$ begin execute {s}; commit; execute {s}; rollback; end $way$", any=True),
    Way("a trigger", "insert into fired{n} values (1)", (*_trigger("after insert"),)),
    Way("a trigger at the end", "set constraints all immediate", ("begin", *_trigger("after insert", "constraint", "deferrable initially deferred"), "insert into fired{n} values (1)"), transaction=True),
    Way("a trigger at COMMIT", "commit", ("begin", *_trigger("after insert", "constraint", "deferrable initially deferred"), "insert into fired{n} values (1)"), transaction=True),
    Way("a materialized view", f"create materialized view {SCHEMA}.kept{{n}} as {{q}}", ("begin",), transaction=True),
    Way("a table of a prepared statement", "create temp table answered{n} as execute asked{n}", ("prepare asked{n} as {q}",)),
    Way("prepared, one plan", "execute asked{n}; execute asked{n}", ("set plan_cache_mode = force_generic_plan", "prepare asked{n} as {q}")),
    Way("a cursor of one row", "fetch 1 from asked{n}; close asked{n}", ("begin", "declare asked{n} scroll cursor for {q}"), transaction=True),
    Way("a cursor whose transaction fails", "fetch all from asked{n}; select 1 / 0; fetch all from asked{n}", ("begin", "declare asked{n} cursor for {q}"), transaction=True),
    Way("a cursor that COMMIT keeps", "commit; fetch all from asked{n}", ("begin", "declare asked{n} cursor with hold for {q}"), transaction=True),
    Way("no rows", "select * from ({q}) as s limit 0"),
    Way("a value", "select (select count(*) from ({q}) as s), exists (select from ({q}) as s)"),
    Way("for each row", "select i, s from generate_series(1, 2) as i, lateral ({q}) as s"),
    Way("COPY that fails", "copy (select 1 / (s::text = '')::int from ({q}) as s) to stdout"),
]  # fmt: skip
