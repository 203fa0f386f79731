"""Frozen records of a workload: which keys are asked in which form, under which conditions.

What `dpsql.query.workloads` makes of the statement of a release.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dpsql.model import GroupDomain, GroupKey, JoinQuery, OutputColumn
from dpsql.query.ir import TRUE, Expr

#: Functions that say how a key is asked: up to a level, from one to another, so many levels.
FORMS = ("prefix", "all_ranges", "ranges")


@dataclass(frozen=True, slots=True)
class Form:
    """How a key is asked: level by level, or by one of `FORMS`; ``width`` in levels."""

    kind: str = "levels"
    width: int = 0


@dataclass(frozen=True, slots=True)
class Part:
    """One key of a grouping set."""

    key: int
    form: Form = Form()


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on the levels of keys: SQL over the columns ``r0."k<key>"``.

    ``atoms`` are those that it is made of by AND, OR and NOT, where it is.  ``tree`` is the same as
    ``sql``; the texts that identify releases do not have it.
    """

    sql: str
    keys: frozenset[int]
    atoms: tuple[Condition, ...] = ()
    tree: Expr = field(default=TRUE, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Predicate:
    """What one conjunct of WHERE says: one of these conditions holds at least."""

    either: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class AskedSet:
    """One grouping set of one query.

    ``shown`` says for each group column of the output what is in it: the place in ``parts``, or
    a text (``None``: NULL), the same in each of its rows.
    """

    query: int
    parts: tuple[Part, ...]
    shown: tuple[int | str | None, ...]
    where: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Reads:
    """What rows a statement counts, and by which keys: relations by OID, in the order of FROM.

    ``declared`` names for each key the declared lists of values that it depends on, outside of
    which there may be rows; ``None``: every row has one of its levels.  ``own`` has for each
    query of a release the conditions that not all of its queries have.
    """

    relations: tuple[int, ...]
    conditions: frozenset[Expr]
    keys: tuple[Expr, ...]
    declared: tuple[str | None, ...]
    own: tuple[frozenset[Expr], ...] = ()

    @property
    def whole(self) -> bool:
        """Whether every row has a level of each key."""
        return not any(self.declared)


@dataclass(frozen=True, slots=True)
class WorkloadQuestion:
    """A validated workload.

    Attributes
    ----------
    counted : JoinQuery
        Counts the results of the block by all keys.
    keys : tuple of GroupKey
        The group keys of all queries together, and the columns that conditions read.
    domains : tuple of GroupDomain
        Public levels; each key is in one of them.
    sets : tuple of AskedSet
        What is asked, in the order of the statement.
    columns : tuple of OutputColumn
        Group columns of the output.
    ranged : tuple of bool
        Whether a column shows ranges: then it becomes two.
    canonical : str
        Equal for equal workloads over equal blocks.
    block : str
        Identifies the block, its keys, and what is declared of what they read.
    reads : Reads
        The block, to compare questions with.
    others : tuple of (str, str)
        Columns of which all values outside of a declared domain count as one, with that.
    """

    counted: JoinQuery
    keys: tuple[GroupKey, ...]
    domains: tuple[GroupDomain, ...]
    sets: tuple[AskedSet, ...]
    columns: tuple[OutputColumn, ...]
    ranged: tuple[bool, ...]
    canonical: str
    block: str
    reads: Reads
    others: tuple[tuple[str, str], ...] = ()

    @property
    def roots(self) -> tuple[int, ...]:
        """Ledger roots of all private relations that are read, sorted."""
        return tuple(
            sorted(
                {
                    root
                    for o in self.counted.occurrences
                    if o.relation.private
                    for root in o.relation.roots
                }
            )
        )
