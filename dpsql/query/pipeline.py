"""The passes in order: from ``dp.analyze``'s facts to a :class:`dpsql.model.Question`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from sqlglot import exp

from dpsql.errors import UnreadableRelation, UnsupportedConstruct
from dpsql.model import GroupKey, OutputColumn, Question
from dpsql.query import refusals
from dpsql.query.asked import Reads
from dpsql.query.canonical import canonical
from dpsql.query.catalog import Catalog
from dpsql.query.disjoint import blocks
from dpsql.query.domains import most_values, plan
from dpsql.query.emit import Emitted, emit
from dpsql.query.flatten import Flattener
from dpsql.query.foreign_keys import remove_foreign_key_joins, remove_unit_joins
from dpsql.query.graph import Graph, build, settle
from dpsql.query.ir import TRUE, Expr, conjuncts
from dpsql.query.matches import Outers, decide
from dpsql.query.measures import Measure
from dpsql.query.nodes import names as parts_of
from dpsql.query.nodes import targets
from dpsql.query.others import declared_others, mapped, require_not_compared
from dpsql.query.output import Output, separate
from dpsql.query.parse import parse
from dpsql.query.reads import question_reads
from dpsql.query.screen import aggregate_names, screen
from dpsql.query.units import attribute_units, require_shared_groups
from dpsql.query.unlisted import unlisted
from dpsql.relation import UnitPath, show_name

#: Occurrences of protected relations that remain after foreign keys removed what they can.
MAX_PRIVATE_OCCURRENCES = 8


def analyse(analysis: Mapping[str, Any], catalog: Catalog, *, use_keys: bool = True) -> Question:
    """Validate a statement and take it apart.

    Parameters
    ----------
    analysis : mapping
        What ``dp.analyze`` returned: ``sql`` (deparsed under ``search_path = pg_catalog``),
        ``functions``, ``collations``, ``columns``, ``command``.
    catalog : Catalog
        Facts about the schema.
    use_keys : bool
        Whether foreign keys may remove joins.

    Returns
    -------
    Question
        Its SQL cannot raise an error on any row (PRIVACY.md section 2).

    Raises
    ------
    NotAnswerable
        Names the construct and its position in ``analysis["sql"]``.  No private row was read.
    """
    return analyse_with_reads(analysis, catalog, use_keys=use_keys)[0]


def analyse_with_reads(
    analysis: Mapping[str, Any],
    catalog: Catalog,
    *,
    use_keys: bool = True,
    ways: Sequence[UnitPath] = (),
) -> tuple[Question, Reads | None]:
    """Do as `analyse`, and return beside the question what finds releases that answer it.

    ``ways`` are those of `dpsql.query.units.attribute_units`.
    """
    with shallow():
        return _analyse(analysis, catalog, use_keys, ways)


def require_flat(text: str, catalog: Catalog) -> None:
    """Refuse a statement that reads what cannot be flattened: a view that no question can name.

    What owners may mend in the relations below it is no reason.

    Raises
    ------
    NotAnswerable
        What every question that reads the same would be refused for.
    """
    with shallow(), suppress(UnreadableRelation):
        Flattener(catalog).top(parse(text))


@contextmanager
def shallow() -> Iterator[None]:
    """Refuse what is too deep for the functions that call themselves."""
    try:
        yield
    except RecursionError:
        raise UnsupportedConstruct("the statement is nested too deeply") from None


def _analyse(
    analysis: Mapping[str, Any], catalog: Catalog, use_keys: bool, ways: Sequence[UnitPath]
) -> tuple[Question, Reads | None]:
    query = parse(str(analysis["sql"]))
    columns = output_columns(analysis, targets(query))
    called = aggregate_names(analysis, catalog)

    def read(outers: Outers) -> tuple[Flattener, Output]:
        flattener = Flattener(catalog, outers)
        scope = flattener.top(query)
        relations = flattener.block.relations
        return flattener, separate(query, scope, catalog, columns, called, relations)

    outers = Outers()
    flattener, output = read(outers)
    screen(analysis, catalog)
    if outers.pending:
        block = flattener.block
        decide(outers, block.relations, block.conjuncts, output.keys, output.measures)
        flattener, output = read(outers.again())
    block = flattener.block
    compared = [*_compared(block.conjuncts, output)]
    require_not_compared(compared, block.relations)
    output.keys = [mapped(key, block.relations) for key in output.keys]
    base = graph_of(flattener, block.conjuncts, output.keys, catalog, use_keys=use_keys, ways=ways)
    domains = plan(base, catalog)
    graphs: dict[Emitted, Graph] = {}

    def measured(measure: Measure) -> Emitted:
        given = measure.condition
        extra = [*domains.conditions, *([] if given == TRUE else conjuncts(given))]
        needed = measure.needed
        graph = base
        if extra or needed:
            conditions = [*block.conjuncts, *extra]
            graph = graph_of(
                flattener,
                conditions,
                output.keys,
                catalog,
                needed=needed,
                use_keys=use_keys,
                ways=ways,
            )
        emitted = emit(graph, measure)
        graphs.setdefault(emitted, graph)
        return emitted

    if domains.group_domains is None and outers.needs_groups is not None:
        refusals.refuse("outer_join", outers.needs_groups)
    emitted = [measured(measure) for measure in output.measures]
    selecting = None
    if domains.group_domains is None and any(r.private for r in block.relations):
        require_shared_groups(base)
        selecting = measured(Measure(units=base.unit is not None))
    counted = list(graphs)
    reads = question_reads(query, block.relations, block.conjuncts, output.keys)
    question = Question(
        canonical=canonical(counted, domains.group_domains),
        aggregates=tuple(e.query for e in counted),
        group_keys=tuple(
            GroupKey(name, key.type)
            for name, key in zip(output.key_names, output.keys, strict=True)
        ),
        group_domains=domains.group_domains,
        undeclared_domain_hint=domains.hint,
        columns=columns,
        statement=output.statement,
        shown=output.shown,
        over_zero=output.over_zero,
        wants_interval=output.wants_interval,
        loose=tuple(output.loose),
        vectors=tuple(counted.index(e) for e in emitted),
        most=tuple(_most(measure, base, catalog) for measure in output.measures),
        selection=None if selecting is None else counted.index(selecting),
        blocks=blocks([*graphs.values()], len(block.relations)),
        others=declared_others(output.keys, block.relations),
        unlisted=unlisted(compared, block.relations),
        redundant=tuple(
            sorted({r.shown for i, r in enumerate(block.relations) if i not in base.alive})
        ),
    )
    return question, reads


def _compared(conditions: Iterable[Expr], output: Output) -> Iterator[Expr]:
    """Yield all expressions over rows that a question has."""
    yield from conditions
    yield from output.keys
    for measure in output.measures:
        yield measure.condition
        yield from measure.needed


def _most(measure: Measure, graph: Graph, catalog: Catalog) -> int | None:
    """Return how many different values there can be; ``None`` where nothing public tells.

    Counts over public relations alone are exact, whatever was declared.
    """
    if measure.distinct is None or not any(r.private for r in graph.relations):
        return None
    return most_values(measure.distinct, graph, catalog)


def output_columns(
    analysis: Mapping[str, Any], shown: Sequence[exp.Expr] = ()
) -> tuple[OutputColumn, ...]:
    """Describe the output columns, each with the quoted name of what it shows."""
    listed = analysis["columns"]
    sources = [show_name(*parts_of(e)) if isinstance(e, exp.Column) else "" for e in shown]
    sources += [""] * (len(listed) - len(sources))
    return tuple(
        OutputColumn(c["name"], c["type_name"], str(c.get("domain", "")), source)
        for c, source in zip(listed, sources, strict=True)
    )


def graph_of(
    flattener: Flattener,
    conditions: list[Expr],
    keys: list[Expr],
    catalog: Catalog,
    *,
    use_keys: bool = True,
    needed: Iterable[Expr] = (),
    ways: Sequence[UnitPath] = (),
) -> Graph:
    """Build the settled graph of a block under some conditions, with its units."""
    stated = flattener.block.relations
    graph = build(stated, conditions, keys, needed)
    by_keys = use_keys and not graph.contradiction
    if by_keys:
        remove_foreign_key_joins(graph)
    attribute_units(graph, catalog, ways)
    if by_keys:
        remove_unit_joins(graph, len(stated))
    _require_few(graph)
    settle(graph)
    return graph


def _require_few(graph: Graph) -> None:
    """Refuse joins whose bounds would take too long: they look at 3^n cases for n mentions."""
    private = [graph.relations[i] for i in graph.alive if graph.relations[i].private]
    if len(private) > MAX_PRIVATE_OCCURRENCES:
        raise UnsupportedConstruct(
            f"more than {MAX_PRIVATE_OCCURRENCES} mentions of protected relations are not "
            "supported in one join",
            detail=f"This statement joins {len(private)} that no foreign key makes redundant, of "
            f"{', '.join(sorted({r.shown for r in private}))}.",
            hint="Ask several smaller questions, or join fewer protected relations.",
        )
