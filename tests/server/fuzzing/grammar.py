"""Random statements: questions that should be answered, and anything that SQL allows.

Every choice comes from one `random.Random`.  `hypothesis` draws some hundred statements a second
from a grammar of this size, which is too slow for ten thousand, and leaves no control of shares.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

RELATIONS: dict[str, dict[str, str]] = {
    "customer": {"c_id": "int", "c_country": "text", "c_secret": "text"},
    '"Orders"': {
        "o_id": "int", "o_customer": "int", "o_status": "text", "o_amount": "num", "o_day": "date",
        "o_at": "ts", "o_weight": "float", "o_note": "text",
    },
    "member": {"m_id": "int", "m_age": "int", "m_name": "text"},
    "visit": {"v_id": "int", "v_member": "int", "v_paid": "num", "v_kind": "text"},
    "country": {"k_code": "text", "k_name": "text", "k_pop": "int"},
    'dpv."Orders"': {
        "o_id": "int", "o_customer": "int", "o_status": "text", "o_amount": "num", "o_day": "date", "o_note": "text",
    },
    "dpv.customer": {"c_id": "int", "c_country": "text"},
    "dpv.visit": {"v_id": "int", "v_member": "int", "v_paid": "num", "v_kind": "text"},
    "dpv.sold": {"o_status": "text", "o_day": "date", "value": "num", "standard_error": "float"},
    "syn.member": {"m_id": "int", "m_age": "int", "m_name": "text"},
    "syn.visit": {"v_id": "int", "v_member": "int", "v_paid": "num", "v_kind": "text"},
    "lab.mine": {"a": "int", "b": "text", "c": "num", "d": "date"},
    "lab.over": {"o_status": "text", "o_amount": "num", "o_customer": "int"},
    "lab.asked": {"k": "text", "n": "int"},
    "pg_class": {"relname": "text", "oid": "int"},
}  # fmt: skip
GUARDED = ["customer", '"Orders"', "member", "visit", 'dpv."Orders"', "dpv.customer", "dpv.visit"]
FREE = ["country", "dpv.sold", "syn.member", "syn.visit", "lab.mine", "lab.asked"]
LITERALS = {
    "int": ["0", "1", "7", "-3", "42", "2147483647", "null::int"],
    "num": ["0", "1.5", "99.99", "-7", "'NaN'::numeric", "1e10"],
    "float": ["0::float8", "'infinity'::float8", "2.5::float8"],
    "text": ["'open'", "'sent'", "'DE'", "'a'", "''", "null::text", "U&'\\0061'", "E'\\n'"],
    "date": ["date '2024-02-01'", "'infinity'::date", "current_date", "date '0001-01-01 BC'"],
    "ts": ["timestamp '2024-02-01 12:00'", "localtimestamp", "'-infinity'::timestamp"],
    "bool": ["true", "false", "null::bool"],
}
#: Patterns by type; a type in braces is an expression of it.
EXPRESSIONS = {
    "int": ["({int} + {int})", "({int} * {int})", "({int} / {int})", "({int} % {int})", "abs({int})", "length({text})",
            "coalesce({int}, {int})", "case when {bool} then {int} else {int} end", "extract(month from {date})::int",
            "nullif({int}, {int})", "({num})::int", "({date} - {date})", "greatest({int}, {int})", "width_bucket({num}, 0, 100, 5)",
            "array_length(array[{int}, {int}], 1)", "(array[{int}, {int}])[{int}]", "position({text} in {text})"],
    "num": ["({num} + {num})", "({num} / {num})", "round({num}, 1)", "({int})::numeric", "coalesce({num}, {int})", "-({num})",
            "case when {bool} then {num} end", "least({num}, {num})", "({float})::numeric", "sqrt({num})", "({num} ^ 2)"],
    "float": ["({float} * {float})", "({num})::float8", "({float} / {float})", "exp({float})"],
    "text": ["upper({text})", "({text} || {text})", "substr({text}, 1, 2)", "coalesce({text}, {text})", "({int})::text",
             "case when {bool} then {text} else {text} end", "replace({text}, {text}, {text})", "to_char({date}, 'YYYY')",
             "({text} collate \"C\")", "left({text}, 1)", "regexp_replace({text}, 'a', 'b')", "format('%s', {text})"],
    "date": ["({date} + 1)", "date_trunc('month', {date})::date", "coalesce({date}, {date})", "({ts})::date", "({text})::date"],
    "ts": ["({ts} + interval '1 day')", "date_trunc('hour', {ts})", "({date})::timestamp"],
    "bool": ["({int} = {int})", "({int} < {int})", "({num} between {num} and {num})", "({text} = {text})", "({date} >= {date})",
             "({bool} and {bool})", "({bool} or {bool})", "(not {bool})", "({int} is null)", "({text} is distinct from {text})",
             "({text} like 'o%')", "({text} in ({text}, {text}))", "(({int}, {text}) = ({int}, {text}))", "({int} = any (array[{int}, {int}]))",
             "({text} ~ 'a')", "(row({int}, {int}) < row({int}, {int}))", "({ts} > {ts})", "({float} < {float})", "starts_with({text}, 'o')",
             "({int} operator(pg_catalog.=) {int})", "({text} similar to 'a%')"],
}  # fmt: skip
#: Conditions and keys that questions may have.
SAFE = {
    "customer": ["c_id < {n}", "c_country = 'DE'", "c_id % 3 = {k}", "c_country in ('DE', 'FR')", "c_secret is not null"],
    '"Orders"': ["o_id < {n}", "o_amount between {k} and {n}", "o_status <> 'back'", "o_day >= '2024-02-01'", "o_amount is not null",
                 "upper(o_status) = 'OPEN'", "o_customer % 5 = {k}", "extract(month from o_day) = 2", "o_note like 'x%'"],
    "member": ["m_id < {n}", "m_age > {n}", "m_age is not null", "m_name = 'nobody'"],
    "visit": ["v_id < {n}", "v_paid > {k}", "v_kind = 'a'", "v_kind is distinct from 'b'"],
    "country": ["k_pop > {n}", "k_name like 'G%'"],
}  # fmt: skip
KEYS = {
    "customer": ["c_country"],
    '"Orders"': ["o_status", "extract(month from o_day)", "o_amount > 50", "width_bucket(o_amount, 0, 100, 4)"],
    "member": ["m_age > 40", "width_bucket(m_age, 0, 100, 5)"],
    "visit": ["v_kind", "v_paid > 20"],
    "country": ["k_name"],
}  # fmt: skip
SUMS = {
    "customer": ["dp_sum(c_id, 0, 100)", "dp_count(distinct c_country)"],
    '"Orders"': ["dp_sum(o_amount)", "dp_avg(o_amount)", "dp_count(o_amount)", "dp_median(o_amount, 0, 100)", "dp_stddev(o_amount)",
                 "dp_histogram(o_amount, 0, 100, 4)", "dp_max(o_day)", "dp_count(distinct o_customer)", "dp_sum(o_weight, 0, 10)"],
    "member": ["dp_avg(m_age)", "dp_sum(m_age)", "dp_percentile(m_age, 0.25)"],
    "visit": ["dp_sum(v_paid)", "dp_avg(v_paid)", "dp_count(distinct v_member)", "dp_variance(v_paid)"],
    "country": [],
}  # fmt: skip
#: The same through views, where ordinary aggregates are written.
ORDINARY = {
    "dp_count(": "count(", "dp_sum(o_amount)": "sum(o_amount)", "dp_avg(o_amount)": "avg(o_amount)", "dp_stddev(": "stddev(",
    "dp_max(": "max(", "dp_sum(v_paid)": "sum(v_paid)", "dp_avg(v_paid)": "avg(v_paid)", "dp_variance(": "variance(",
    "dp_median(o_amount, 0, 100)": "percentile_cont(0.5) within group (order by o_amount)",
}  # fmt: skip
JOINS = [
    (["customer"], ""), (['"Orders"'], ""), (["member"], ""), (["visit"], ""), (["visit"], ""), (['"Orders"'], ""),
    (['"Orders"', "customer"], "o_customer = c_id"), (["customer", "country"], "c_country = k_code"),
    (["visit", "member"], "v_member = m_id"),
]  # fmt: skip
EXPOSED = {'"Orders"': 'dpv."Orders"', "customer": "dpv.customer", "visit": "dpv.visit"}


@dataclass(slots=True)
class Grammar:
    """Writes statements."""

    random: random.Random
    scope: list[dict[str, str]] = field(default_factory=list)
    aliases: int = 0

    def pick(self, options: list[str]) -> str:
        return self.random.choice(options)

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    # questions -----------------------------------------------------------------------------

    def question(self) -> tuple[str, list[str]]:
        """A question that can be answered, with its output columns."""
        names, link = self.random.choice(JOINS)
        views = all(n in EXPOSED for n in names) and self.chance(0.3)
        keys = [k for n in names for k in KEYS[n]]
        sums = ["dp_count(*)", *[s for n in names for s in SUMS[n]]]
        key = self.pick(keys) if self.chance(0.45) else None
        chosen = [self.pick(sums) for _ in range(1 if self.chance(0.7) else 2)]
        if self.chance(0.15):
            chosen = [
                "dp_count(*)",
                self.pick(
                    [
                        "dp_interval_low(dp_count(*))",
                        "dp_count(*) * 2 + 1",
                        "round(dp_count(*), -1)",
                    ]
                ),
            ]
        conditions = [self._safe(self.pick(SAFE[n])) for n in names if self.chance(0.5)]
        if self.chance(0.1):
            chosen[0] += f" filter (where {self._safe(self.pick(SAFE[names[0]]))})"
        if views:
            if "dp_histogram" in str(chosen) or "interval" in str(chosen):
                chosen = ["dp_count(*)"]
            for ours, theirs in ORDINARY.items():
                chosen = [c.replace(ours, theirs) for c in chosen]
            conditions = [c for c in conditions if "c_secret" not in c]
        places = [EXPOSED[n] if views else n for n in names]
        source, head = self._joined(places, link, conditions)
        columns = [*(["g"] if key else []), *[f"x{i}" for i in range(len(chosen))]]
        items = [*([key] if key else []), *chosen]
        text = (
            head
            + "select "
            + ", ".join(f"{i} as {c}" for i, c in zip(items, columns, strict=True))
            + source
        )
        if key:
            text += self.pick([" group by 1", f" group by {key}"])
            if self.chance(0.15):
                text += (
                    f" having {'count' if views else 'dp_count'}(*) > {self.random.randint(0, 50)}"
                )
            if self.chance(0.3):
                text += self.pick(
                    [
                        " order by 1",
                        " order by 2 desc, 1",
                        " order by 1 limit 3",
                        " limit 2 offset 1",
                    ]
                )
        return text, columns

    def _safe(self, condition: str) -> str:
        return condition.format(n=self.pick(["7", "30"]), k=self.pick(["1", "2"]))

    def _joined(self, places: list[str], link: str, conditions: list[str]) -> tuple[str, str]:
        """FROM and WHERE, and perhaps a WITH."""
        head = ""
        if len(places) == 1 and self.chance(0.15):
            (place,) = places
            if self.chance(0.5):
                return f" from (select * from {place}) as s" + self._where(conditions), head
            return " from w" + self._where(conditions), f"with w as (select * from {place}) "
        if not link:
            return f" from {places[0]}" + self._where(conditions), head
        if self.chance(0.5):
            return f" from {places[0]} join {places[1]} on {link}" + self._where(conditions), head
        return f" from {places[0]}, {places[1]}" + self._where([link, *conditions]), head

    @staticmethod
    def _where(conditions: list[str]) -> str:
        return f" where {' and '.join(conditions)}" if conditions else ""

    # anything ------------------------------------------------------------------------------

    def expression(self, kind: str, depth: int) -> str:
        """An expression of a type over the columns in scope."""
        known = [c for columns in self.scope for c, t in columns.items() if t == kind]
        if depth <= 0 or self.chance(0.35):
            return self.pick(known) if known and self.chance(0.75) else self.pick(LITERALS[kind])
        if self.chance(0.06):
            return self._subquery(kind, depth - 1)
        if self.chance(0.03):
            return self.pick(ODD)
        pattern = self.pick(EXPRESSIONS[kind])
        parts, at = [], 0
        while (start := pattern.find("{", at)) >= 0:
            end = pattern.index("}", start)
            parts += [pattern[at:start], self.expression(pattern[start + 1 : end], depth - 1)]
            at = end + 1
        return "".join([*parts, pattern[at:]])

    def _subquery(self, kind: str, depth: int) -> str:
        if kind == "bool":
            return f"{self.pick(['exists', 'not exists'])} ({self.select(depth)})"
        return f"({self.select(depth, [kind])} limit 1)"

    def relation(self) -> str:
        return self.pick(self.random.choice([GUARDED, GUARDED, FREE, list(RELATIONS)]))

    def source(self, depth: int, relations: list[str] | None) -> tuple[str, dict[str, str]]:
        """A FROM item, and its columns."""
        self.aliases += 1
        alias = f"t{self.aliases}"
        way = self.random.random()
        if depth > 0 and way < 0.15:
            kinds = [self.pick(["int", "text", "num"]) for _ in range(2)]
            named = {f"{alias}_{i}": k for i, k in enumerate(kinds)}
            inner = self.select(depth - 1, kinds, relations)
            lateral = "lateral " if self.chance(0.2) else ""
            return f"{lateral}({inner}) as {alias}({', '.join(named)})", named
        if way < 0.2:
            return f"(values (1, 'open'), (2, null)) as {alias}({alias}_i, {alias}_t)", {
                f"{alias}_i": "int",
                f"{alias}_t": "text",
            }
        if way < 0.24:
            return f"generate_series(1, 3) as {alias}_i", {f"{alias}_i": "int"}
        name = self.pick(relations) if relations else self.relation()
        for _ in range(4):
            if any(columns is RELATIONS[name] for columns in self.scope):
                name = self.pick(relations) if relations else self.relation()
        sampled = " tablesample system (50)" if self.chance(0.02) else ""
        only = "only " if self.chance(0.03) else ""
        return f"{only}{name}{sampled}", RELATIONS[name]

    def select(
        self, depth: int, kinds: list[str] | None = None, relations: list[str] | None = None
    ) -> str:
        """A query with outputs of these types."""
        head = ""
        outer = len(self.scope)
        first, columns = self.source(depth, relations)
        text = first
        self.scope.append(columns)
        for _ in range(self.random.choice([0, 0, 0, 1, 1, 2])):
            other, more = self.source(depth - 1, relations)
            self.scope.append(more)
            how = self.pick(
                [", ", " join ", " left join ", " full join ", " cross join ", " natural join "]
            )
            on = (
                f" on {self.expression('bool', 1)}"
                if how in (" join ", " left join ", " full join ")
                else ""
            )
            text += f"{how}{other}{on}"
        key = self.expression(self.pick(["text", "int"]), 1) if self.chance(0.3) else None
        kinds = kinds or [
            self.pick(["int", "text", "num", "bool", "date"])
            for _ in range(self.random.randint(1, 3))
        ]
        items = [self._item(kind, depth, key) for kind in kinds]
        text = f"select {self.pick(['', '', '', '', 'distinct ', 'all '])}{', '.join(items)} from {text}"
        if self.chance(0.6):
            text += f" where {self.expression('bool', depth)}"
        if key:
            if self.chance(0.8):
                text += " group by " + self.pick(
                    [key, key, f"rollup ({key})", f"grouping sets (({key}), ())", f"cube ({key})"]
                )
            if self.chance(0.3):
                text += f" having {self.pick(['count(*) > 1', 'dp_count(*) > 2', 'max(1) = 1'])}"
        text += self._end(depth)
        del self.scope[outer:]
        if depth > 0 and self.chance(0.1):
            more = self.select(depth - 1, kinds, relations)
            text = f"({text}) {self.pick(['union', 'union all', 'intersect', 'except'])} ({more})"
        if depth > 0 and self.chance(0.08):
            self.aliases += 1
            name = f"w{self.aliases}"
            inner = self.select(depth - 1, ["int"], relations)
            head = f"with {self.pick(['', 'recursive '])}{name}(i) as {self.pick(['', 'materialized '])}({inner}) "
        return head + text

    def _item(self, kind: str, depth: int, key: str | None) -> str:
        if key and self.chance(0.25):
            return key
        if key and self.chance(0.95):
            value = self.expression(self.pick(["int", "num"]), 1)
            return self.pick(["count(*)", f"sum({value})", f"max({value})", "dp_count(*)", f"dp_sum({value}, 0, 10)", f"array_agg({value})",
                              f"dp_count(distinct {value})", f"string_agg({self.expression('text', 1)}, ',')", f"dp_avg({value})"])  # fmt: skip
        value = self.expression(kind, depth)
        if self.chance(0.06):
            frame = self.pick(
                [
                    "",
                    f"partition by {self.expression('int', 1)}",
                    f"order by {self.expression('int', 1)}",
                ]
            )
            return f"{self.pick(['row_number()', 'count(*)', f'max({value})', f'lag({value})', 'dp_count(*)'])} over ({frame})"
        return value

    def _end(self, depth: int) -> str:
        text = ""
        if self.chance(0.15):
            text += " order by 1"
        if self.chance(0.15):
            text += self.pick(
                [
                    " limit 5",
                    " limit 0",
                    " offset 1",
                    " order by 1 fetch first 2 rows with ties",
                    " limit all",
                ]
            )
        if self.chance(0.04):
            text += self.pick(
                [
                    " for update",
                    " for share",
                    " for no key update skip locked",
                    " for key share nowait",
                ]
            )
        return text


#: Calls that tell of the session, of other rows, or run text.
ODD = [
    "random()", "pg_backend_pid()", "current_setting('dp.epsilon')", "txid_current()", "(select dp_count(*) from customer)",
    "ctid", "tableoid", "xmin", "customer", "query_to_xml('select * from customer', true, true, '')", "pg_sleep(0)", "now()",
    "dp_count(*)", "dp.query('select dp_count(*) from member')", "pg_relation_size('customer')", "currval('lab.s')", "nextval('lab.s')",
    "set_config('dp.epsilon', '2', false)", "dp_interval_low(1)", "row_to_json(customer)", "table_to_xml('customer', true, true, '')",
    "cursor_to_xml('c', 1, true, true, '')", "ts_stat('select c_secret from customer')", "pg_get_viewdef('dpv.customer'::regclass)",
    "has_table_privilege('customer', 'select')", "col_description('customer'::regclass, 1)", "dp.caller()", "dp.may_commit()",
    "1/0", "'x'::int", "grouping(1)", "(customer).c_secret", "(c_id).c_secret",
]  # fmt: skip
