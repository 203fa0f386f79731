"""From the statement of a release to one counting query and what is asked of its groups.

All queries of a workload read one block: the same relations, joined by the same conditions, whose
group keys together span the domain.  Conditions that all queries have restrict the block; what
else a query's WHERE says must be a condition on keys, evaluated on their public levels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from dpsql.errors import MissingDeclaration, UnsupportedConstruct
from dpsql.model import GroupKey, JoinQuery
from dpsql.query import types
from dpsql.query.aggregates import is_aggregate
from dpsql.query.asked import (
    FORMS,
    AskedSet,
    Form,
    Part,
    Predicate,
    Reads,
    WorkloadQuestion,
)
from dpsql.query.canonical import describe
from dpsql.query.catalog import Catalog
from dpsql.query.domains import Domains, plan
from dpsql.query.emit import emit
from dpsql.query.expressions import Builder
from dpsql.query.flatten import Flattener, Scope
from dpsql.query.graph import Graph
from dpsql.query.grouping_sets import keys, parse_workload, sets
from dpsql.query.ir import TRUE, Expr
from dpsql.query.nodes import constant_of, label, targets, type_of, uncast
from dpsql.query.normalise import normalise
from dpsql.query.others import declared_others, mapped, require_not_compared
from dpsql.query.pipeline import graph_of, output_columns, shallow
from dpsql.query.reads import counts_rows, declared
from dpsql.query.screen import aggregate_names, screen
from dpsql.query.workload_conditions import LevelConditions
from dpsql.relation import Relation, UnitPath, base
from dpsql.sqltree.nodes import Call, exact, position

#: Group keys of a workload.
MAX_KEYS = 62


@dataclass
class _Query:
    """One query of the union while it is read."""

    place: int
    select: exp.Select
    scope: Scope
    conditions: dict[Expr, None]
    builder: Builder
    parts: dict[object, Part] = field(default_factory=dict)


def analyse_workload(
    analysis: Mapping[str, Any], catalog: Catalog, ways: Sequence[UnitPath] = ()
) -> WorkloadQuestion:
    """Validate the statement of a release and take it apart.

    Parameters
    ----------
    analysis : mapping
        What ``dp.analyze`` returned.
    catalog : Catalog
        Facts about the schema.
    ways : sequence of UnitPath
        As of `dpsql.query.units.attribute_units`.

    Raises
    ------
    NotAnswerable
        Names the construct and its position in ``analysis["sql"]``.  No private row was read.
    MissingDeclaration
        Where a key has no public domain: names the statement that declares it.
    """
    with shallow():
        return _Reader(analysis, catalog, ways).read()


class _Reader:
    def __init__(
        self, analysis: Mapping[str, Any], catalog: Catalog, ways: Sequence[UnitPath]
    ) -> None:
        self.analysis = analysis
        self.ways = ways
        self.catalog = catalog
        self.columns = output_columns(analysis)
        self.keys: list[Expr] = []
        self.names: list[str] = []
        self.value = -1
        self.relations: Sequence[Relation] = ()

    def read(self) -> WorkloadQuestion:
        queries: list[_Query] = []
        first: Flattener | None = None
        for select in parse_workload(str(self.analysis["sql"])):
            flattener = Flattener(self.catalog)
            scope = flattener.top(select)
            first = first or flattener
            _require_same(first, flattener, select)
            queries.append(
                _Query(
                    len(queries),
                    select,
                    scope,
                    dict.fromkeys(flattener.block.conjuncts),
                    Builder(self.catalog, scope.lookup),
                )
            )
        if aggregate_names(self.analysis, self.catalog):
            raise UnsupportedConstruct(
                "a release counts rows by dp_count(*), not by other aggregates",
                hint="Write dp_count(*) for count(*); ask for sums and other aggregates in"
                " questions of their own.",
            )
        screen(self.analysis, self.catalog, own=frozenset(FORMS))
        assert first is not None  # noqa: S101 - a statement has a query
        relations = first.block.relations
        if not any(r.private for r in relations):
            raise UnsupportedConstruct(
                "the statement reads public relations only",
                hint="Query them directly: nothing has to be released.",
            )
        self.relations = relations
        for query in queries:
            query.conditions.pop(TRUE, None)
            require_not_compared(query.conditions, relations)
            _require_plain(query.select)
            self._find_value(query)
            for node in keys(query.select):
                query.parts[exact(node)] = self._part(query, node)
        grouped = len(self.keys)
        common = [c for c in queries[0].conditions if all(c in q.conditions for q in queries)]
        if any(c.kind == "const" for c in common):  # false or NULL
            raise UnsupportedConstruct(
                "a condition of the statement is never true",
                detail="Every count would be 0.",
                hint="Leave the condition out.",
                position=position(queries[0].select),
            )
        levels = LevelConditions(self.keys, self._key, relations)
        wheres = [
            levels.where(
                [c for c in q.conditions if c not in common], q.place + 1, position(q.select)
            )
            for q in queries
        ]
        if len(self.keys) > MAX_KEYS:
            raise UnsupportedConstruct(
                f"more than {MAX_KEYS} group keys in one workload are not supported",
                hint="Release several smaller workloads.",
            )
        if not self.keys:
            raise UnsupportedConstruct(
                "a release needs a group key",
                hint="Ask SELECT dp_count(*) FROM relation for a single count.",
            )
        graph = graph_of(first, common, self.keys, self.catalog, ways=self.ways)
        domains = plan(graph, self.catalog)
        if domains.group_domains is None:
            raise _undeclared(domains, grouped)
        if domains.conditions:
            both = [*common, *domains.conditions]
            graph = graph_of(first, both, self.keys, self.catalog, ways=self.ways)
        _require_one_row_each(graph)
        emitted = emit(graph)
        _require_determined(emitted.query)
        sets, ranged = self._sets(queries, wheres)
        used = [*first.block.conjuncts, *self.keys]
        block = "\n".join(
            [
                describe(emitted),
                *(f"{d.positions} {d.identity}" for d in domains.group_domains),
                *_declared(relations, used),
            ]
        )
        shown = tuple(c for i, c in enumerate(self.columns) if i != self.value)
        return WorkloadQuestion(
            counted=emitted.query,
            keys=tuple(
                GroupKey(name, key.type) for name, key in zip(self.names, self.keys, strict=True)
            ),
            domains=domains.group_domains,
            sets=sets,
            columns=shown,
            ranged=ranged,
            canonical="\n".join(["release 1", block, repr(sets), repr(shown)]),
            block=block,
            others=declared_others(self.keys, relations),
            reads=Reads(
                tuple(r.oid for r in relations),
                frozenset(map(normalise, common)),
                tuple(map(normalise, self.keys)),
                tuple(declared(key, relations) for key in self.keys),
                tuple(
                    frozenset(normalise(c) for c in q.conditions if c not in common)
                    for q in queries
                ),
            ),
        )

    # -- keys -----------------------------------------------------------------

    def _part(self, query: _Query, node: exp.Expr) -> Part:
        form = Form()
        inner = node
        if isinstance(node, Call) and node.schema == "dp":
            form, inner = self._form(node)
        built = query.builder.build(inner)
        if len(built.occurrences()) != 1:
            raise UnsupportedConstruct(
                "a group key must use columns of one relation",
                hint="Group by each relation's expression: GROUP BY a.x, b.y.",
                position=position(node),
            )
        if built.type == "interval":
            raise UnsupportedConstruct(
                "GROUP BY an interval is not supported",
                hint="Use EXTRACT(epoch FROM interval).",
                position=position(node),
            )
        require_not_compared((built,), self.relations)
        key = mapped(built, self.relations)
        if key != built and form.kind != "levels":
            raise UnsupportedConstruct(
                f"dp.{form.kind} is not for a key whose other values count as one",
                detail="The value for all others has no place in the order of the declared ones.",
                hint="Group by the key itself, or let the owner declare its domain without other.",
                position=position(node),
            )
        return Part(self._key(key, self._name(query, node)), form)

    def _form(self, node: Call) -> tuple[Form, exp.Expr]:
        kind, args = node.name, node.expressions
        if kind not in FORMS or len(args) != (2 if kind == "ranges" else 1):
            raise UnsupportedConstruct(
                f"dp.{kind} cannot be a group key",
                hint="Group by dp.prefix(x), dp.all_ranges(x) or dp.ranges(x, width).",
                position=position(node),
            )
        if kind != "ranges":
            return Form(kind), args[0]
        width = constant_of(uncast(args[1]))
        if width is None or not str(width.text).isdigit() or int(str(width.text)) < 1:
            raise UnsupportedConstruct(
                "the width of dp.ranges must be a positive whole number of levels",
                hint="Write dp.ranges(age, 10).",
                position=position(node),
            )
        return Form(kind, int(str(width.text))), args[0]

    def _name(self, query: _Query, node: exp.Expr) -> str:
        for target, shown in zip(targets(query.select), self.columns, strict=True):
            if exact(target) == exact(node):
                return shown.name
        return label(node)

    def _key(self, built: Expr, name: str) -> int:
        if built not in self.keys:
            self.keys.append(built)
            self.names.append(name)
        return self.keys.index(built)

    def _find_value(self, query: _Query) -> None:
        """Find the one dp_count(*) of a query."""
        found = [(i, t) for i, t in enumerate(targets(query.select)) if is_aggregate(t)]
        for _, call in found:
            if "filter" in call.flags:
                raise UnsupportedConstruct(
                    "FILTER is not supported in the statement of a release",
                    hint="Write its condition in WHERE, of a query of its own in a UNION ALL.",
                    position=position(call),
                )
            if not counts_rows(call):
                raise UnsupportedConstruct(
                    "a release counts rows",
                    hint="Use dp_count(*); ask for sums and other aggregates in questions of their"
                    " own.",
                    position=position(call),
                )
        if len(found) != 1 or self.value not in (-1, found[0][0]):
            raise UnsupportedConstruct(
                "each query of a release needs one dp_count(*), in the same column",
                hint="SELECT key, dp_count(*) FROM relation GROUP BY key.",
                position=position(query.select),
            )
        self.value = found[0][0]

    # -- output -------------------------------------------------------------------

    def _sets(
        self, queries: list[_Query], wheres: list[tuple[Predicate, ...]]
    ) -> tuple[tuple[AskedSet, ...], tuple[bool, ...]]:
        found = []
        places = [i for i in range(len(self.columns)) if i != self.value]
        ranged = [False] * len(places)
        for query, where in zip(queries, wheres, strict=True):
            select = query.select
            listed = targets(select)
            shown_keys = [(exact(listed[i]), listed[i]) for i in places]
            missing = [n for n in keys(select) if all(exact(n) != key for key, _ in shown_keys)]
            if missing:
                raise UnsupportedConstruct(
                    "every group key of a release must be in its select list",
                    hint="Add it to SELECT: rows of the release are told apart by it.",
                    position=position(missing[0]),
                )
            for grouped in sets(select) or [[]]:
                nodes = [*map(exact, grouped)]
                parts = tuple(query.parts[n] for n in nodes)
                if len({p.key for p in parts}) < len(parts):
                    raise UnsupportedConstruct(
                        "a grouping set asks for one key in two forms",
                        hint="Use GROUPING SETS ((dp.prefix(x)), (x)).",
                        position=position(select),
                    )
                shown: list[int | str | None] = []
                for n, (key, target) in enumerate(shown_keys):
                    if key in nodes:
                        part = parts[nodes.index(key)]
                        ranged[n] |= part.form.kind in ("all_ranges", "ranges")
                        shown.append(nodes.index(key))
                    elif key in query.parts:
                        shown.append(None)
                    else:
                        shown.append(_constant(target))
                found.append(AskedSet(query.place, parts, tuple(shown), where))
        return tuple(found), tuple(ranged)


def _require_same(first: Flattener, other: Flattener, select: exp.Select) -> None:
    if [r.oid for r in first.block.relations] != [r.oid for r in other.block.relations]:
        raise UnsupportedConstruct(
            "the queries of a workload read different relations",
            detail="One measurement answers all of them, so that they must count the same rows.",
            hint="Write the same FROM clause in each, or release them apart.",
            position=position(select),
        )


def _require_plain(select: exp.Select) -> None:
    """Refuse what is post-processing: a release is a table, which can be queried."""
    clauses = {
        "distinct": "DISTINCT",
        "having": "HAVING",
        "order": "ORDER BY",
        "limit": "LIMIT",
        "offset": "LIMIT",
    }
    for clause, name in clauses.items():
        if select.args.get(clause):
            raise UnsupportedConstruct(
                f"{name} is not supported in the statement of a release",
                hint=f"Query the released table with {name}, which is free.",
                position=position(select),
            )


def _require_one_row_each(graph: Graph) -> None:
    """Refuse joins of several relations that are protected row by row."""
    private = [graph.relations[i] for i in graph.alive if graph.relations[i].private]
    if graph.units:
        raise UnsupportedConstruct(
            "results that can belong to several privacy units cannot be released",
            hint="Join on the unit, so that each result belongs to one.",
        )
    if graph.unit is None and len(private) > 1:
        names = ", ".join(sorted(r.shown for r in private))
        raise UnsupportedConstruct(
            "a release over several protected relations needs privacy units",
            detail=f"One row of {names} can be in any number of joined rows, so that the join has"
            " another sensitivity than a table.",
            hint="Release over one of them, joined to public relations, or ask dp_count(*)"
            " directly.",
        )


def _undeclared(domains: Domains, grouped: int) -> MissingDeclaration:
    """Refuse keys without a public domain; those from ``grouped`` on are of conditions."""
    if any(key < grouped for key in domains.missing):
        return MissingDeclaration(
            "a release needs a public domain of each group key",
            hint=f"{domains.hint};",
            declares=domains.declares,
        )
    return MissingDeclaration(
        "a condition of one query of a release needs a public domain of its column",
        detail="It is evaluated on the column's values, since other queries count rows that do not"
        " meet it; a condition that all queries have may be on any column.",
        hint=f"{domains.hint};",
        declares=domains.declares,
    )


def _require_determined(query: JoinQuery) -> None:
    """Refuse joins in which one protected row can have several results."""
    if query.unit is not None:
        return
    found = [o for o in query.occurrences if o.relation.private]
    if not found:
        raise UnsupportedConstruct(
            "nothing of a protected relation is left to be counted",
            detail="A foreign key says that its join changes nothing.",
            hint="Count the public relation directly: nothing has to be released.",
        )
    (private,) = found
    if not query.determined_by(private.attributes, private):
        public = ", ".join(sorted(o.relation.shown for o in query.occurrences if o is not private))
        raise UnsupportedConstruct(
            "a row of the protected relation can be in several joined rows",
            detail=f"It is joined to {public} not along a key of these.",
            hint="Join public relations on their primary or unique keys, or ask dp_count(*)"
            " directly.",
        )


def _declared(relations: Sequence[Relation], used: Sequence[Expr]) -> list[str]:
    """Write what owners declared of all that is read: relations, and domains of columns."""
    columns = {c for e in used for c in e.columns()}
    return [
        f"{r.oid} {r.private} {r.root} {r.units}"
        f" {[d for d in r.domains if (i, d.column) in columns]}"
        for i, r in enumerate(relations)
    ]


def _constant(node: exp.Expr) -> str | None:
    """Read a label; refuse anything else."""
    known = constant_of(uncast(node))
    if known is not None and known.text is None:
        return None
    full = type_of(node) if isinstance(node, exp.Cast) else known.type if known else ""
    if known is None or (full and base(full) not in types.SIMPLE):
        raise UnsupportedConstruct(
            "the select list of a release holds group keys, constants and dp_count(*)",
            hint="Compute with the released table, which is free.",
            position=position(node),
        )
    return known.text
