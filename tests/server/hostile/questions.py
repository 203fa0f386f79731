"""Questions for hostile sessions: one of each kind, and some that make one row expensive."""

from __future__ import annotations

from dataclasses import dataclass

from tests.server.hostile.world import HEAVY, KEPT, PATHS


@dataclass(frozen=True, slots=True)
class Question:
    """Statements, of which the last one asks; those before are settings of the session.

    ``reads`` says whether protected rows are read, so that a charge is due.
    """

    name: str
    statements: tuple[str, ...]
    reads: bool = True

    @property
    def settings(self) -> tuple[str, ...]:
        return self.statements[:-1]

    @property
    def text(self) -> str:
        return self.statements[-1]


def _ask(name: str, *statements: str, reads: bool = True) -> Question:
    return Question(name, statements, reads)


KINDS = [
    _ask("rows", "select dp_count(*) from reading where r_value > 5"),
    _ask("rows by declared groups", "select r_kind, dp_count(*), dp_sum(r_value, 0, 100) from reading group by r_kind"),
    _ask("rows by other groups", "select r_note, dp_count(*) from reading group by r_note"),
    _ask("a join with a public relation", "select t_name, dp_count(*) from reading join town on r_kind = t_name group by t_name"),
    _ask("a self-join", "select dp_count(*) from edge as x join edge as y on x.b = y.a"),
    _ask("triangles", "select dp_count(*) from edge as x join edge as y on x.b = y.a join edge as z on y.b = z.a and z.b = x.a"),
    _ask("percentiles", "select dp_median(r_value, 0, 100), dp_max(r_value, 0, 100) from reading"),
    _ask("a histogram", "select dp_histogram(r_value, 0, 100, 10) from reading"),
    _ask("units", "select dp_count(*) from person where age > 5"),
    _ask("units by groups", "select kind, dp_count(*), dp_avg(age, 0, 100) from person group by kind"),
    _ask("rows of units", "select c_kind, dp_sum(c_paid, 0, 40) from call join person on person = id group by c_kind"),
    _ask("units by other groups", "select c_note, dp_count(*) from call group by c_note"),
    _ask("percentiles of units", "select dp_median(c_paid, 0, 40) from call"),
    _ask("different values", "select dp_count(distinct person), dp_count(distinct c_note) from call"),
    _ask("several units", "select dp_count(*), dp_sum(paid, 0, 40) from visit join shop on shop = s_id join person on person = id"),
    _ask("pairs of units", "select dp_count(*) from person as x, person as y where x.age = y.age and x.id < y.id"),
    _ask("all pairs of units", "select dp_count(*) from shop as x, person as y where x.s_id <= 30 or y.note <> 'note'"),
    _ask("units of several kinds by groups", "select dp_count(*) filter (where paid > 3), dp_sum(paid, 0, 40) from visit"),
    _ask("sampling", "set dp.method = sampling", "select dp_count(*) from edge as x join edge as y on x.b = y.a"),
    _ask("sampling as published", "set dp.method = sampling_published", "select dp_count(*) from edge as x join edge as y on x.b = y.a"),
    _ask("elastic sensitivity", "set dp.method = elastic", "select dp_count(*) from edge as x join edge as y on x.b = y.a"),
    _ask("stored statistics", f"select dp_count(*) from {PATHS}"),
    _ask("stored statistics, residual", "set dp.method = residual", f"select dp_count(*) from {PATHS}"),
    _ask("a sketch", "set dp.method = sketch_published", f"select dp_count(*) from {PATHS}"),
    _ask("other groups of a join", "select x.a % 7, dp_count(*) from road as x join road as y on x.b = y.a group by x.a % 7"),
    _ask("dates by other groups", "select r_day, dp_count(*) from reading group by r_day"),
    _ask("a view", "select r_kind, count(*) from dpv.reading group by r_kind"),
    _ask("a view of units", "select avg(age) from dpv.person where kind = 'a'"),
    _ask("dp.query", "select dp.query('select dp_count(*) from call where c_paid > 3', null)"),
    _ask("dp.estimate", "select * from dp.estimate('select dp_count(*) from visit where paid > 3')", reads=False),
    _ask("dp.explain", "select * from dp.explain('select dp_count(*) from edge as x join edge as y on x.b = y.a')", reads=False),
    _ask("dp.release", "select dp.release('r{n}', 'select r_kind, dp_count(*) from reading where r_value > 7 group by cube (r_kind)', 0.01, 1e-12)"),
    _ask("dp.release of prefixes", "select dp.release('p{n}', 'select dp.prefix(r_value), dp_count(*) from reading where r_value < 20 group by 1', 0.01, 1e-12)"),
    _ask("dp.release by rounds", "select dp.release('m{n}', 'select r_kind, width_bucket(r_value, 0, 100, 4), dp_count(*) from reading group by cube (1, 2)', 0.01, 1e-12, mechanism => 'aim')"),
    _ask("dp.refresh_release", f"select dp.refresh_release('{KEPT}')"),
    _ask("a released table", f"select * from dpv.{KEPT} order by 1, 2, 3", reads=False),
    _ask("an answer from a release", "set dp.fresh = off", "select dp_count(*) from reading where r_kind = 'b'", reads=False),
    _ask("dp.release of units", "select dp.release('r{n}', 'select kind, dp_count(*) from person group by kind', 0.01, 1e-12)"),
    _ask("dp.suggest_bounds", "select count(*) from dp.suggest_bounds('reading', 'r_value', 0.01)"),
    _ask("a stored answer", "set dp.fresh = off", "select dp_count(*) from reading", reads=False),
]  # fmt: skip
#: Asked less often, because they take longer.
SYNTHESES = [
    _ask("dp.synthesize", "call dp.synthesize('lab', array['reading']::regclass[], 0.1, 1e-12, placeholders => true, replace => true)"),
    _ask("dp.synthesize of units", "call dp.synthesize('lab', array['person', 'call']::regclass[], 0.1, 1e-12, d_max => '{\"public.call\": 10}', placeholders => true, replace => true)"),
]  # fmt: skip
#: A fifth of the kinds, one of each way through the engine.
FEW = [q for q in KINDS if q.name in ("rows by declared groups", "a self-join", "rows of units", "several units", "a view", "a stored answer", "a sketch", "dp.refresh_release", "an answer from a release")]  # fmt: skip

#: An expression that is long for the planted row and short for all others.
_LONG = f"case when id = {HEAVY} then note else 'b' end"
_MATCHES = "%a" * 250


_EXCESSIVE = f"from person where {_LONG} like '{'%a' * 4999}'"
#: Refused; without the limit on wildcards it would use nearly all of the stack.
EXCESSIVE = _ask("a pattern of thousands of matches", f"select dp_count(*) {_EXCESSIVE}")
#: The same in a release, which is measured in the session itself.
EXCESSIVE_RELEASE = _ask(
    "a pattern of thousands of matches in a release",
    f"select dp.release('r{{n}}', $$ select kind, dp_count(*) {_EXCESSIVE} group by kind $$, 0.01, 1e-12)",
)


def _where(name: str, condition: str, place: str = "person") -> Question:
    return _ask(name, f"select dp_count(*) from {place} where {condition}")


HEAVY_ROWS = [
    _where("a pattern of many matches", f"{_LONG} like '{_MATCHES}'"),
    _where("a pattern of many matches after replacements", f"replace(replace(case when id = {HEAVY} then '{'x' * 99}' else 'b' end, 'x', '{'a' * 50}'), 'y', 'z') like '{_MATCHES}'"),
    _where("a pattern of many matches in a unit", f"c_note like '{_MATCHES}'", "call"),
    _where("a pattern of many matches over several units", f"v_note like '{_MATCHES}'", "visit"),
    _where("a pattern without case", f"r_note ilike '{_MATCHES}'", "reading"),
    _ask("a pattern in a view", f"select r_kind, count(*) from dpv.reading where r_note like '{_MATCHES}' group by r_kind"),
    _ask("a pattern in an argument", f"select dp_sum(case when r_note like '{_MATCHES}' then 1 else 0 end, 0, 1) from reading"),
    _ask("a pattern in a release", f"select dp.release('r{{n}}', $$ select r_kind, dp_count(*) from reading where r_note like '{_MATCHES}' group by r_kind $$, 0.01, 1e-12)"),
    _where("a pattern of many characters", f"note like '{'_' * 9000}%'"),
    _where("long replacements", f"length(replace(note, 'a', '{'b' * 90}')) > 7"),
    _where("long texts joined", " || ".join(["note"] * 8) + " = 'x'"),
    _where("many digits", "amount * amount * amount > 7"),
    _where("a quotient of many digits", "r_amount / (r_amount * r_amount) > 7", "reading"),
    _ask("long group keys", "select note, dp_count(*) from person group by note"),
    _ask("long different values", "select dp_count(distinct c_note || c_note) from call join person on person = id where c_note <> note"),
    _ask("a sum of many digits", "select dp_sum(amount, 0, 10) from person"),
    _ask("a heavy unit", "select dp_count(*) from call as x join call as y on x.person = y.person"),
]  # fmt: skip
