"""Random scripts: a query in some position, a change, a command, a call with odd arguments."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from tests.server.asking import PARALLEL
from tests.server.fuzzing.grammar import FREE, GUARDED, ODD, RELATIONS, Grammar

#: Positions of a query {q}; {q'} is the query as a literal.
POSITIONS = [
    "{q}", "{q}", "{q}", "{q}", "({q})", "select * from ({q}) as s", "with w as ({q}) select * from w, w as v",
    "with w as materialized ({q}) select count(*) from w", "select count(*) from ({q}) as s", "select s.*, row_number() over () from ({q}) as s",
    "select * from (values (1), (2)) as v(i), lateral ({q}) as s", "select exists ({q})", "select array({q})",
    "({q}) union all ({q})", "({q}) except ({q})", "({q}) intersect ({r})", "select * from ({q}) as s, ({r}) as t",
    "with recursive w as (({q}) union all select w.* from w where false) select * from w", "select (select count(*) from ({q}) as s)",
    "explain {q}", "explain (analyze, timing off, summary off) {q}", "explain (verbose, costs off) {q}", "explain (analyze, buffers, wal, format json) {q}",
    "prepare p as {q}; execute p; explain execute p; explain analyze execute p; deallocate p",
    "set plan_cache_mode = force_generic_plan; prepare p as {q}; execute p; execute p",
    "begin; declare c cursor for {q}; fetch 2 from c; move all in c; close c; commit",
    "begin; declare c scroll cursor with hold for {q}; fetch last from c; commit; fetch first from c; close c",
    "create temp table tt as {q}; select * from tt", "create table lab.kept{id} as {q}; table lab.kept{id}", "select * into temp ti from ({q}) as s",
    "create view lab.v{id} as {q}; select * from lab.v{id}; explain select * from lab.v{id}", "create temp view tv as {q}; table tv",
    "create materialized view lab.m{id} as {q}; refresh materialized view lab.m{id}; table lab.m{id}", "create materialized view lab.m{id} as {q} with no data",
    "create recursive view lab.rv{id} (x) as {q}", "copy ({q}) to stdout", "copy ({q}) to stdout with (format csv, header)", "copy ({q}) to program 'cat'",
    "copy ({q}) to '/tmp/fuzz'", "do $do$ declare r record; begin for r in {q} loop null; end loop; end $do$",
    "do $do$ begin perform * from ({q}) as s; exception when others then raise notice '% %', sqlstate, sqlerrm; end $do$",
    "do $do$ begin execute {q'}; end $do$", "create function lab.f{id}() returns setof record language sql as {q'}; select * from lab.f{id}() as t(a text)",
    "create function lab.f{id}() returns bigint language sql stable as {q'}; select lab.f{id}(), lab.f{id}()",
    "create function lab.f{id}() returns bigint language sql begin atomic {q}; end", "create rule r as on update to lab.mine do also {q}",
    "create function lab.f{id}() returns bigint language plpgsql as $f$ begin return ({q}); end $f$; select lab.f{id}()",
    "insert into lab.mine (a) select count(*) + 1000 from ({q}) as s", "insert into lab.mine (a) {q}", "update lab.mine set c = 1 where exists ({q})",
    "delete from lab.mine where a in ({q})", "delete from lab.mine using ({q}) as s returning *", "merge into lab.mine as m using ({q}) as s on m.a = 1 when matched then delete",
    "with i as (insert into lab.mine (a) values (-1) returning a) {q}", "create policy p on lab.mine using (exists ({q}))",
    "create function lab.h{id}() returns trigger language plpgsql as $f$ begin perform * from ({q}) as s; return new; end $f$; create trigger t before insert on lab.mine for each row execute function lab.h{id}(); insert into lab.mine (a) values (-7)",
    "create function lab.h{id}() returns trigger language plpgsql as $f$ begin perform * from ({q}) as s, new_rows; return null; end $f$; create trigger t after insert on lab.mine referencing new table as new_rows for each statement execute function lab.h{id}(); insert into lab.mine (a) values (-8)",
    "create function lab.i{id}(int) returns bigint language plpgsql immutable as $f$ begin return (select count(*) from ({q}) as s); end $f$; create table lab.x{id} as select 1 as a; create index on lab.x{id} (lab.i{id}(a)); analyze lab.x{id}; reindex table lab.x{id}; select * from lab.x{id} where lab.i{id}(a) = 1",
    "create function lab.i{id}(int) returns bool language plpgsql immutable as $f$ begin perform * from ({q}) as s; return true; end $f$; create domain lab.e{id} as int check (lab.i{id}(value)); select 1::lab.e{id}; select dp_count(*) from customer where c_id = any ('{{1}}'::lab.e{id}[])",
    "create function lab.i{id}(int) returns bool language plpgsql stable as $f$ begin perform * from ({q}) as s; return true; end $f$; alter table lab.mine enable row level security; alter table lab.mine force row level security; create policy w on lab.mine using (lab.i{id}(a)); select count(*) from lab.mine; select a from lab.mine, ({q}) as s",
    "create function lab.i{id}() returns setof record language plpgsql as $f$ begin return query {q}; end $f$; select count(*) from lab.i{id}() as t(a bigint)",
    "create procedure lab.j{id}() language plpgsql as $f$ begin perform * from ({q}) as s; commit; perform * from ({q}) as s; rollback; end $f$; call lab.j{id}()",
    "do $do$ declare c refcursor; r record; begin open c for {q}; fetch c into r; move c; close c; execute {q'} into r; end $do$",
    "do $do$ begin begin perform * from ({q}) as s; raise exception 'x'; exception when others then null; end; execute {q'}; end $do$",
    "create table lab.k{id} (a int, b bigint default (0), check (a > 0)); insert into lab.k{id} select 1, count(*) from ({q}) as s returning (select count(*) from ({q}) as u)",
    "create function lab.i{id}(variadic int[]) returns bigint language sql stable as 'select count(*) from lab.mine'; select lab.i{id}(1, 2), s.* from ({q}) as s",
    "select * from dp.explain({q'})", "select * from dp.estimate({q'})", "select dp.query({q'})", "select * from dp.run({q'}, null) as t(a text, b text)",
    "select dp.deparse({q'})", "select dp.release('r{id}', {q'}, 0.1, 1e-12)", "begin; savepoint s; {q}; rollback to s; {q}; rollback",
    "begin isolation level serializable read only; {q}; commit", "begin read only; {q}; prepare transaction 'g'", "set dp.fresh = on; {q}; {q}",
    "set dp.epsilon = 0.01; {q}", "set dp.mechanism = {mechanism}; {q}", "set dp.method = {method}; {q}", "set dp.statistics = stored; {q}",
    "set dp.max_rows_contributed = {n}; {q}", "set dp.max_groups_contributed = 1; set dp.min_frequency = 30; {q}", "set dp.max_epsilon_per_query = 0.5; {q}",
    "set search_path = pg_temp, public; create temp table customer (c_id int); {q}", "set enable_seqscan = off; {q}", "set role dp_executor; {q}",
    PARALLEL + "; set parallel_setup_cost = 0; {q}", "set session authorization owner1; {q}", "set client_min_messages = debug1; {q}",
    "set local statement_timeout = 0; {q}; reset all", "{q} \\;", "{q}; {r}", "alter view lab.asked rename to other; {q}", "set timezone = 'Asia/Tokyo'; {q}",
    "set standard_conforming_strings = off; set datestyle = 'German'; {q}", "listen x; {q}; notify x, 'y'; unlisten *",
]  # fmt: skip
#: Commands at relations: {p} guarded, {f} free, {any} any, {e} a condition, {odd} an odd call.
COMMANDS = [
    "table {p}", "copy {p} to stdout", "copy {p} from stdin", "copy {p} to '/tmp/fuzz'", "insert into {p} select * from {p}", "insert into {p} default values",
    "insert into {p} values (1) on conflict do nothing returning *", "update {p} set c_id = 1 where {e}", "update {p} set o_note = o_note returning *",
    "delete from {p} where {e} returning *", "delete from {f} where {e}", "merge into {p} using {f} on true when matched then do nothing", "truncate {p}", "lock table {p} in access share mode",
    "begin; lock table {p} in access exclusive mode; commit", "analyze {p}", "vacuum {p}", "cluster {p}", "reindex table {p}", "create index on {p} (c_id)",
    "create statistics lab.s{id} on o_id, o_status from {p}", "alter table {p} add column z int default 1/0", "alter table {p} alter column o_note set storage plain", "alter table {p} owner to current_user",
    "alter table {p} enable row level security", "create trigger t before insert on {p} execute function suppress_redundant_updates_trigger()", "comment on table {p} is 'x'",
    "create rule \"_RETURN\" as on select to {p} do instead select 1", "create table lab.child{id} () inherits ({p})", "create table lab.same{id} (like {p} including all)",
    "create table lab.ref{id} (a int references {p})", "create table lab.part{id} partition of {p} default", "create temp table customer as select * from {p}",
    "create view lab.v2{id} as select * from {p}", "create view lab.v3{id} with (security_barrier) as select * from {p}, {f}; select * from lab.v3{id}", "drop table {p}", "drop view {p} cascade", "grant select on {p} to public",
    "select * from {p} for update", "select {odd} from {p}", "select {odd} from {any} where {e}", "select * from {any} where {odd} is null", "select {odd}", "select * from {odd} as x",
    "select * from {f} where {e} order by 1 limit 5", "select count(*) from {f}", "select * from only {p}", "select ctid, xmin, * from {p}", "select {p} from {p}",
    "explain select * from {p} where {e}", "explain analyze select count(*) from {p}", "explain (settings) select * from {p} where c_id = 3",
    "select count(*) from {p} where {e}", "select dp_count(*) from {any} where {e}", "select dp_count(*), {odd} from {p} group by 2", "select dp_count(*) from {p}, {any}",
    "select dp_count({p}.*) from {p}", "select dp_count(*) from {p} natural join {any}", "select dp_sum(1, 2, 3) from {p}", "select dp_sum(o_amount, {odd}, 5) from {p}",
    "select dp_histogram(o_amount, 0, 10, -1) from {p}", "select dp_percentile(v_paid, 7) from {p}", "select dp_count(*) over () from {p}", "select dp_count(*) filter (where {e}) from {p}",
    "select dp_interval_high(dp_sum(o_id)) from {p}", "select dp_count(*) from {p} having {odd} is null", "select dp_count(*) from {p} order by {odd}", "select dp_count(*) from {p} limit {odd}",
    "select max(dp_count(*)) from {p}", "select dp_count(dp_count(*)) from {p}", "select dp_count(distinct o_day), dp_min(o_day) from {p}", "values ((select dp_count(*) from {p}))",
    "select * from generate_series(1, (select dp_count(*) from {p}))", "select case when true then 1 else (select dp_count(*) from {p}) end", "call dp.synthesize('lab', array['{p}']::regclass[], 1)",
    "select * from dp.run('select dp_count(*) from {p} where c_id = any($1)', array['{{1}}']) as t(a int)", "select * from dp.run({lit}, {lits}) as t(a text)", "select dp.query({lit})", "select dp.query({lit}, {lits})",
    "select * from dp.explain({lit}, {lits})", "select dp.estimate({lit})", "select dp.drop_release({lit})", "select dp.share_release('sold', {lit})", "select dp.release({lit}, {lit}, {num}, {num})",
    "select dp.suggest_bounds({lit}, {lit}, {num})", "select * from dp.budgets", "select count(*) from dp.ledger", "table dp.releases", "table dp.relations", "table dp.progress", "table dp.spend",
    "select dp.protect('{p}')", "select dp.set_domain('{p}', 'c_id', 0, 1)", "select dp.grant_budget(current_user::regrole, {num}, {num})", "select dp.expose('{p}')", "select dp.lockdown()", "select dp.refresh_statistics('{p}')",
    "select dp.caller(), dp.pack(1, 2)", "select dp.analyze({lit})", "select dp.draw({lit}, 1, 1, 1)", "select dp.steps({num}, 1, 1)", "select dp.bound_text({lit}, {num})", "select * from dp.functions limit 3",
    "create extension file_fdw", "create server here foreign data wrapper postgres_fdw", "create subscription s connection '' publication p", "create publication p for table {p}",
    "select * from pg_stats where tablename = 'customer'", "select reltuples >= -1 from pg_class where relname = 'customer'", "select pg_read_file('x')", "select lo_import('x')", "load 'dpsql'",
    "create language plpython3u", "create function lab.g{id}() returns int language c as 'dpsql', 'dpsql_door'", "select * from pg_create_logical_replication_slot('s', 'test_decoding')",
    "create function lab.peek{id}(int) returns bool language plpgsql cost 0.0001 as $f$ begin raise notice 'saw %', $1; return true; end $f$; select dp_count(*) from customer where lab.peek{id}(c_id)",
    "create operator lab.= (function = int4eq, leftarg = int, rightarg = int); select dp_count(*) from customer where c_id operator(lab.=) 3",
    "create domain lab.dom{id} as int check (value > {num}::int); select dp_count(*) from customer where c_id = any ('{{1}}'::lab.dom{id}[])", "create cast (text as int) with inout as implicit",
    "create aggregate lab.dp_count(*) (sfunc = int8inc, stype = int8, initcond = '0'); set search_path = lab, public; select dp_count(*) from {p}",
    "create function lab.run(text, text[]) returns setof record language sql as 'select 1::bigint'; set search_path = lab; select public.dp_count(*) from public.customer",
    "create type lab.pair{id} as (a int, b text); select row(1, 'x')::lab.pair{id}, (row(1, 'x')::lab.pair{id}).b", "create temp sequence s; select nextval('s'), {odd}",
    "alter role current_user set dp.epsilon = 5", "set dp.epsilon = {lit}", "set dp.delta = {num}", "set watch.alarms = ''", "set session_replication_role = replica", "show all",
    "reset all", "discard plans", "discard temp", "begin; {q}; savepoint a; {r}; release a; commit", "checkpoint", "deallocate all", "close all", "fetch all from c", "execute p", "commit", "rollback",
]  # fmt: skip
ODD_LITERALS = [
    "null", "''", "'select 1'", "'select dp_count(*) from customer'", "'select * from customer'", "'select dp_count(*) from customer; drop table member'", "'x'", "'{}'",
    "'select dp_count(*) from \"Orders\" where o_status = $1'", "repeat('(', 5000)", "'customer'", "e'\\\\x00'", "'select dp_count(*) from lab.asked'", "'NaN'",
    "'with w as (select 1) select dp_count(*) from w'", "'select dp_count(*) from visit where v_paid > $1 and v_kind = $2'", "'-- '", "'select dp_count(*) from customer for update'", "'public.customer'",
]  # fmt: skip
ODD_LISTS = [
    "null",
    "array['open']",
    "array['1', 'a']",
    "array[null]::text[]",
    "'{}'",
    "array[array['1']]",
    "'[0:1]={1,2}'::text[]",
    "array['''; drop table member; --']",
]
ARGUMENTS = {
    "regclass": ["'public.customer'", "'dpv.customer'", "'pg_class'", "0", "999999999", "null", "'lab.mine'", "'syn.visit'"],
    "oid": ["0", "'public.customer'::regclass", "4294967295", "'dpv.customer'::regclass", "null", "23", "'pg_class'::regclass"],
    "oid[]": ["null", "'{}'", "array['public.customer'::regclass::oid]", "'{0, null, 4294967295}'", "'{{1}, {2}}'"],
    "regclass[]": ["null", "'{}'", "array['public.customer', null]", "'{member, visit}'"],
    "text[]": ODD_LISTS, "name[]": ODD_LISTS, "bytea": ["null", "''", "'\\x00'", "'\\xffffffffffffffffff'", "'\\x0108'"],
    "boolean": ["true", "false", "null"], "regrole": ["null", "current_user", "'owner1'", "0"], "interval": ["null", "'1 day'", "'-1 month'", "'0'"],
    "timestamp with time zone": ["now()", "'infinity'", "null"], "uuid": ["null", "gen_random_uuid()"], "jsonb": ["null", "'{}'", "'[1]'"], "json": ["null", "'{\"visit\": 3}'"],
    "integer[]": ["null", "'{}'", "'{1, null}'", "'{{1}}'"], "bigint[]": ["null", "'{}'", "'{-1}'"], "smallint[]": ["null", "'{}'", "'{1}'"], "double precision[]": ["null", "'{NaN}'"],
    "regtype": ["null", "'int'", "0"], "pg_snapshot": ["null", "pg_current_snapshot()"], "date": ["null", "'infinity'"], "\"char\"": ["null", "'x'"], "name": ["null", "'customer'", "'c_id'", "''"],
}  # fmt: skip
NUMBERS = ["0", "-1", "1", "1e-9", "null", "'NaN'", "'infinity'", "1e308", "0.5"]
GUARDED_NAMES = re.compile(
    r"(?<!syn\.)\b(customer|orders|member|visit|over|asked)\b|\bdp[_.]", re.IGNORECASE
)
TOKEN = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|[A-Za-z_][A-Za-z_0-9.]*|\d+|\S|\s+")


#: Questions that are asked again and again, and the share of others.
POOL, NEW = 150, 0.08


@dataclass(slots=True)
class Script:
    """What is sent at once."""

    text: str
    kind: str

    @property
    def protects(self) -> bool:
        """Whether it names anything that is guarded."""
        return bool(GUARDED_NAMES.search(self.text))

    @property
    def statements(self) -> int:
        """How many statements it is, as far as semicolons tell."""
        return len([part for part in self.text.split(";") if part.strip()])


class Writer:
    """Writes one script after the other."""

    def __init__(self, seed: int, calls: list[tuple[str, list[str]]]) -> None:
        self.random = random.Random(seed)
        #: Functions that the role may call, with the types of their arguments.
        self.calls = calls
        self.grammar = Grammar(self.random)
        self.pool = [self.grammar.question()[0] for _ in range(POOL)]

    def _question(self) -> str:
        """Mostly one that was asked before, which costs the server little."""
        if self.random.random() < NEW:
            return self.grammar.question()[0]
        return self.random.choice(self.pool)

    def script(self) -> Script:
        """Return the next one."""
        way = self.random.random()
        self.grammar.scope.clear()
        self.grammar.aliases = 0
        if way < 0.04:
            found = Script(self._call(), "call")
        elif way < 0.52:
            found = Script(self._placed(self._question()), "question")
        elif way < 0.65:
            found = Script(self._placed(self.grammar.select(self.random.randint(0, 2))), "anything")
        elif way < 0.78:
            found = Script(
                self._placed(self.grammar.select(self.random.randint(0, 2), relations=FREE)), "free"
            )
        else:
            found = Script(self._filled(self.random.choice(COMMANDS)), "command")
        if self.random.random() < 0.05:
            found = Script(self._disturbed(found.text), "disturbed")
        return found

    def _call(self) -> str:
        name, types = self.random.choice(self.calls)
        arguments = [self._argument(kind) for kind in types]
        form = "select * from {}({}) as f" if self.random.random() < 0.5 else "select {}({})"
        return form.format(name, ", ".join(arguments))

    def _argument(self, kind: str) -> str:
        pick = self.random.choice
        values = ARGUMENTS.get(
            kind,
            NUMBERS
            if kind in ("integer", "bigint", "numeric", "smallint", "double precision")
            else None,
        )
        if kind.startswith("any") or kind in ("record", '"any"'):
            return pick(["1", "'x'::text", "null::int", "array[1, 2]", "row(1, 'x')", "1.5"])
        return f"({pick(values or [*ODD_LITERALS, 'null'])})::{kind}"

    def _placed(self, query: str) -> str:
        position = self.random.choice(POSITIONS) if self.random.random() < 0.75 else "{q}"
        return self._filled(position, query)

    def _filled(self, text: str, query: str | None = None) -> str:
        pick = self.random.choice
        number = str(self.random.randint(1, 10**9))
        guarded, free = pick(GUARDED), pick(FREE)
        self.grammar.scope[:] = [RELATIONS[free if "{f}" in text else guarded]]
        given = {
            "{id}": lambda: number,
            "{q}": lambda: query or self._question(), "{q'}": lambda: "$q$" + (query or "") + "$q$", "{r}": self._question,
            "{p}": lambda: guarded, "{f}": lambda: free, "{any}": lambda: pick(list(RELATIONS)), "{e}": lambda: self.grammar.expression("bool", 2), "{odd}": lambda: pick(ODD),
            "{lit}": lambda: pick(ODD_LITERALS), "{lits}": lambda: pick(ODD_LISTS), "{num}": lambda: pick(NUMBERS), "{n}": lambda: pick(["1", "7", "30"]),
            "{mechanism}": lambda: pick(["laplace", "cauchy", "calibrated", "quantile", "r2t", "none"]), "{method}": lambda: pick(["elastic", "residual", "sampling", "sketch", "truncation"]),
        }  # fmt: skip
        return (
            re.sub(r"\{[a-z]+'?\}", lambda m: given[m[0]]() if m[0] in given else m[0], text)
            .replace("{{", "{")
            .replace("}}", "}")
        )

    def _disturbed(self, text: str) -> str:
        """The same with tokens dropped, doubled, swapped or taken from elsewhere."""
        tokens = TOKEN.findall(text)
        for _ in range(self.random.randint(1, 3)):
            at, other = self.random.randrange(len(tokens)), self.random.randrange(len(tokens))
            way = self.random.randrange(4)
            if way == 0:
                tokens[at] = ""
            elif way == 1:
                tokens[at] += " " + tokens[other]
            elif way == 2:
                tokens[at], tokens[other] = tokens[other], tokens[at]
            else:
                tokens[at] = self.random.choice(
                    [*RELATIONS, *ODD, "null", "*", "lateral", "not", "1"]
                )
        return "".join(tokens)
