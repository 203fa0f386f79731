"""Public tables that a synthesis refers to: their rows are read before anything is measured.

Links are numbers of these rows.  The copy refers to the rows as they were then: to none that is
inserted later.  Where a row that it refers to was deleted, writing is refused and names the row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dpsql.engine.synthesis_ask import Learned, expression
from dpsql.engine.synthesis_measured import MeasuredTable
from dpsql.errors import NotAnswerable
from dpsql.relation import quote_identifier
from dpsql.sqltree import aliased, cast, column, number, render, sql, table
from dpsql.synthesis.generated import Generated
from dpsql.synthesis.schema import ForeignKey, Plan, Planned, Table

if TYPE_CHECKING:
    from dpsql.engine.services import Services

#: Rows of a public table up to which the one that is referred to is learnt as an attribute is.
FEW_ROWS = 256
#: Rows of a public table whose attributes are looked at.
MOST_ROWS = 5_000_000
# with the rights of who writes, so that neither a view nor a policy runs what its owner wrote
_PUBLIC = """
select case when to_regclass($1) is null then 'there is none'
  when exists (select from pg_class as c where c.oid = to_regclass($1)
                and c.relkind not in ('r', 'p')) then 'it is no table'
  when dp.own_problem(to_regclass($1)) is not null then dp.own_problem(to_regclass($1)) end
  as problem
"""
#: Types whose output functions write what their casts to text do, whatever a session's settings.
_STEADY = frozenset(("int2", "int4", "int8", "numeric", "text", "varchar", "name", "uuid"))
_Texts = tuple[str | None, ...]


def read_public(planned: Planned, learnt: Sequence[Learned], services: Services) -> MeasuredTable:
    """Read the levels, codes and keys of a public table's rows, by one statement.

    Raises
    ------
    NotAnswerable
        When the table has too many rows.
    """
    import numpy as np

    public = planned.table
    rows = _number(public, MOST_ROWS, services)
    if rows > MOST_ROWS:
        raise NotAnswerable(
            f"the public table {public.shown} has too many rows to be referred to",
            detail=f"At most {MOST_ROWS} are listed.",
        )
    unique = list(dict.fromkeys(c for unique in public.uniques for c in unique.columns))
    asked = [expression(planned, item) for item in learnt]
    asked += [column("", quote_identifier(c)) for c in unique]
    texts: list[_Texts] = []
    if asked:
        names = [quote_identifier(f"dpsql {n}") for n in range(len(asked))]
        found = [column("s", v) for v in names]
        # rows without a key in an order of their own, since each reading may find another one
        order = (
            [column("s", quote_identifier(c)) for c in order_of(public)]
            if public.uniques
            else [sql(':value COLLATE "C"', value=v) for v in found]
        )
        statement = sql(
            "SELECT :listed FROM (SELECT *, :texts FROM :public) AS s",
            listed=[
                aliased(sql("array_agg(:value ORDER BY :keys)", value=v, keys=order), f"c{n}")
                for n, v in enumerate(found)
            ],
            texts=[aliased(cast(a, "text"), v) for a, v in zip(asked, names, strict=True)],
            public=table(quoted(public)),
        )
        row: tuple[Any, ...] = services.database.execute(render(statement))[0]
        texts = [tuple(values or ()) for values in row]
    levels, codes = [], []
    for values in texts[: len(learnt)]:
        known = {text: n for n, text in enumerate(dict.fromkeys(values))}
        levels.append(tuple(known))
        codes.append([known[text] for text in values])
    by_rows = np.array(codes, dtype=np.int32).reshape(len(codes), rows).T
    keys = dict(zip(unique, texts[len(learnt) :], strict=True))
    return MeasuredTable(tuple(levels), np.ascontiguousarray(by_rows), keys)


def digest(public: MeasuredTable) -> str:
    """Return a digest of the keys of a public table in their order: links are numbers of rows."""
    rows = 0 if public.codes is None else len(public.codes)
    return hashlib.sha256(repr((rows, list(public.keys.items()))).encode()).hexdigest()


def require_rows(
    job: int, plan: Plan, generated: Sequence[Generated | None], services: Services
) -> None:
    """Refuse to write references to rows of public tables that are not there any more.

    The rows are read with the rights of who writes.

    Raises
    ------
    NotAnswerable
        When a row is gone, or a table is no public table any more.
    """
    for place, planned in enumerate(plan.tables):
        listed = generated[place]
        if not planned.table.public or listed is None:
            continue
        linked = [*_linked(place, plan, generated)]
        if linked:
            require_public(planned.table, services)
        types = {c.name: c.base for c in planned.table.columns}
        for key, rows in linked:
            columns = [c for c in key.parent_columns if types[c] in _STEADY]
            wanted = {tuple(listed.keys[c][row] for c in columns) for row in rows}
            if columns and (gone := wanted - _present(planned.table, columns, services)):
                raise NotAnswerable(
                    f"rows of the public table {planned.table.shown} that the synthesis refers to"
                    " are gone",
                    detail=_shown(columns, gone),
                    hint=f"Insert them again, and CALL dp.write_synthesis({job}); pays nothing. Or"
                    " drop it with dp.drop_synthesis and measure again, which is paid again.",
                )


def _linked(
    place: int, plan: Plan, generated: Sequence[Generated | None]
) -> Iterator[tuple[ForeignKey, list[int]]]:
    """Yield foreign keys to a table with the numbers of the rows that generated rows link to."""
    import numpy as np

    for child, rows in zip(plan.tables, generated, strict=True):
        if rows is None or child.table.public:
            continue
        for reference, parents in zip(child.references, rows.parents, strict=True):
            if reference.parent == place:
                linked = np.unique(parents)
                yield reference.key, linked[linked >= 0].tolist()


def _present(public: Table, columns: Sequence[str], services: Services) -> set[_Texts]:
    """Read columns of a public table as texts."""
    # by the types' output functions: casts to text could be code of their owners
    shown = [
        aliased(
            sql(
                "array_agg(CASE WHEN :value IS NOT NULL THEN format('%s', :value) END)",
                value=column("t", quote_identifier(c)),
            ),
            f"c{n}",
        )
        for n, c in enumerate(columns)
    ]
    statement = sql("SELECT :shown FROM :public AS t", shown=shown, public=table(quoted(public)))
    row: tuple[Any, ...] = services.database.execute(render(statement))[0]
    return set(zip(*(texts or () for texts in row), strict=True))


def _shown(columns: Sequence[str], gone: set[_Texts]) -> str:
    """Write how many rows are gone, and one of them."""
    first = min(gone, key=repr)
    values = ", ".join(f"{c} = {text}" for c, text in zip(columns, first, strict=True))
    return f"One of {len(gone)}: {values}."


def require_public(public: Table, services: Services) -> None:
    """Refuse a public table that became something which runs code of its owner when it is read.

    Raises
    ------
    NotAnswerable
    """
    problem = services.database.execute(_PUBLIC, [("text", quoted(public))])[0][0]
    if problem:
        raise NotAnswerable(
            f"the public table {public.shown} is not what it was",
            detail=f"Now {problem}; whoever made that could have code run with your rights.",
            hint="Drop the copy with dp.drop_synthesis and measure again.",
        )


def order_of(public: Table) -> tuple[str, ...]:
    """Return the columns that rows are ordered by: the primary key's, or the first unique ones."""
    primary = (unique.columns for unique in public.uniques if unique.primary)
    return next(primary, public.uniques[0].columns if public.uniques else ())


def _number(public: Table, most: int, services: Services) -> int:
    """Count rows, up to one more than so many."""
    statement = sql(
        "SELECT count(*) AS n FROM (SELECT FROM :public LIMIT :most) AS t",
        public=table(quoted(public)),
        most=number(most + 1),
    )
    rows = services.database.execute(render(statement))
    return int(str(rows[0][0]))


def quoted(public: Table) -> str:
    """Write the qualified name of a table."""
    return f"{quote_identifier(public.schema)}.{quote_identifier(public.name)}"


def small_references(plan: Plan, planned: Planned, services: Services) -> list[int]:
    """List the references to public tables of so few rows that they are levels."""
    found = []
    for k, reference in enumerate(planned.references):
        parent = plan.tables[reference.parent].table
        if not parent.public or reference.nullable or len(reference.key.columns) > 1:
            continue
        if planned.shared(k):  # another reference says which
            continue
        if 0 < _number(parent, FEW_ROWS, services) <= FEW_ROWS:
            found.append(k)
    return found


def referenced(plan: Plan, place: int) -> tuple[str, ...]:
    """Return the columns of a table that references name, in the order in which they do."""
    found: dict[str, None] = {}
    for planned in plan.tables:
        for reference in planned.references:
            if reference.parent == place:
                found |= dict.fromkeys(reference.key.parent_columns)
    return tuple(found)
