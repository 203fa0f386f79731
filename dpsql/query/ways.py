"""Which questions lie in the span of a release, and by which of its cells they are answered.

A question over the same block counts, for each of its groups, the rows with some levels of the
release's keys.  Where the cells of one grouping set tell these apart, the answer is a sum of them
with signs: of single levels, of differences of two prefixes, of ranges.  It is a function of
released values (PRIVACY.md section 2 (b)).  A way is taken only if both are the same function of
the data, whatever the data are: rows outside of a declared domain are in no cell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from dpsql.query.asked import AskedSet, Form, Reads
from dpsql.query.ir import TRUE, Expr, render
from dpsql.query.normalise import normalise
from dpsql.query.others import others_of
from dpsql.query.over_keys import OverKeys
from dpsql.query.span import Level, Span
from dpsql.query.types import INTEGERS, TIMESTAMP

#: Types whose values can be counted through one by one, and types to which casts keep the order.
COUNTABLE = (*INTEGERS, "date")
_RISING = {"date": ("date", TIMESTAMP)} | dict.fromkeys(INTEGERS, (*INTEGERS, "numeric"))


@dataclass(frozen=True, slots=True)
class Test:
    """A conjunct of the question, ``source``, as SQL over levels: the columns ``r0."k<key>"``."""

    source: Expr
    sql: str
    keys: frozenset[int]


@dataclass(frozen=True, slots=True)
class Inside:
    """A condition that keeps a key with a declared domain within some values.

    Either ``listed`` has them, constants in SQL, with ``null`` for NULL; or they lie between
    what the tests ``above`` and those ``below`` say, each over ``r0."k<key>"``.
    """

    key: int
    listed: tuple[str, ...] = ()
    null: bool = False
    above: tuple[str, ...] = ()
    below: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Asked:
    """A question in terms of a release's keys.

    Attributes
    ----------
    groups : tuple of int
        The key of each group key of the question.
    tests : tuple of Test
        The conditions that the release does not have for all its queries.
    inside : tuple of tuple of Inside
        For each declared key that is not grouped by what may keep it within its levels; one of
        them must.
    """

    groups: tuple[int, ...]
    tests: tuple[Test, ...]
    inside: tuple[tuple[Inside, ...], ...]


@dataclass(frozen=True, slots=True)
class Pick:
    """Cells of one column: from level ``low`` to ``high``, of the group level, times ``sign``.

    Levels are numbered from 0; ``group`` is -1 where the key is none of the question's.
    """

    group: int
    low: int
    high: int
    sign: int


@dataclass(frozen=True, slots=True)
class Chosen:
    """What is taken of one key: ``picks``, or everything (``None``).

    ``place`` is that of its column; ``group`` the place of the key in the question's.
    """

    key: int
    place: int
    group: int | None
    ranged: bool
    picks: tuple[Pick, ...] | None


@dataclass(frozen=True, slots=True)
class Way:
    """Cells that answer a question: those of a set that match, one pick of each key at a time.

    ``spanning`` are conditions on several keys at once; without them, and if ``counted``, every
    group has all of its cells in the table.
    """

    place: int
    chosen: tuple[Chosen, ...]
    spanning: tuple[Test, ...]
    counted: bool
    size: int


def asked_of(question: Reads, released: Reads) -> Asked | None:
    """Write a question in terms of a release's keys; ``None`` where that cannot be."""
    if question.relations != released.relations:
        return None
    conditions = frozenset(map(normalise, question.conditions))
    if not released.conditions <= conditions:
        return None
    places = {key: n for n, key in enumerate(released.keys)}
    groups = [places.get(normalise(key)) for key in question.keys]
    known = tuple(n for n in groups if n is not None)
    if len(set(known)) < len(groups):
        return None
    tests = []
    for condition in sorted(conditions - released.conditions, key=repr):
        if condition == TRUE:
            continue
        levels = OverKeys(places.get, released.keys)
        over = levels.write(condition)
        if over is None or not levels.used:
            return None
        tests.append(Test(condition, render(over), frozenset(levels.used)))
    inside = []
    for n, declared in enumerate(released.declared):
        if declared is None:
            continue
        key = released.keys[n]
        if n in known:
            # equal groups are equal rows: of a column, or if the same values are declared
            if key.kind != "col" and question.declared[known.index(n)] != declared:
                return None
            continue
        found = tuple(_inside(n, key, conditions))
        if not found:
            return None
        inside.append(found)
    return Asked(known, tuple(tests), tuple(inside))


# -- declared domains ---------------------------------------------------------------------


def _inside(n: int, key: Expr, conditions: frozenset[Expr]) -> Iterator[Inside]:
    """Yield what keeps a column within values that can be looked up."""
    others = others_of(key)
    if others is not None:  # declared without NULL
        found = (_listed(n, others.column, condition) for condition in sorted(conditions, key=repr))
        yield from (inside for inside in found if inside is not None)
    if key.kind != "col":
        return
    places = {key: n}
    above: list[str] = []
    below: list[str] = []
    for condition in sorted(conditions, key=repr):
        listed = _listed(n, key, condition)
        if listed is not None:
            yield listed
        side = _side(key, condition)
        if side:
            over = OverKeys(places.get, (key,)).write(condition)
            assert over is not None  # noqa: S101 - it reads the key only
            (above if side > 0 else below).append(render(over))
    if above and below:
        yield Inside(n, above=tuple(above), below=tuple(below))


def _listed(n: int, key: Expr, e: Expr) -> Inside | None:
    """Read a condition that a key equals a constant, or one of several, or is NULL."""
    if e.kind == "or":
        arms = [_listed(n, key, arm) for arm in e.args]
        if any(arm is None for arm in arms):
            return None
        values = tuple(v for arm in arms if arm for v in arm.listed)
        return Inside(n, values, any(arm.null for arm in arms if arm))
    if e.kind == "is" and e.data == "NULL" and e.args[0] == key:
        return Inside(n, null=True)
    equal = e.kind == "in" and not e.data
    if not equal and not (e.kind == "op" and e.data == "=" and len(e.args) == 2):
        return None
    own, *constants = e.args
    if own != key or any(v.kind != "const" or v.data is None for v in constants):
        return None
    return Inside(n, tuple(render(v) for v in constants))


def _side(key: Expr, e: Expr) -> int:
    """Tell whether a condition keeps a countable column above (1) or below (-1) a constant."""
    if e.kind != "op" or e.data not in ("<", "<=", ">", ">=") or len(e.args) != 2:
        return 0
    own, limit = e.args
    while own.kind == "cast" and own.type in _RISING.get(own.args[0].type, ()):
        own = own.args[0]
    if own != key or key.type not in COUNTABLE or limit.kind != "const" or limit.data is None:
        return 0
    return 1 if e.data in (">", ">=") else -1


# -- ways ---------------------------------------------------------------------------------


def ways(
    asked: Asked,
    span: Span,
    truth: Mapping[Test, frozenset[int]],
    groups: Sequence[frozenset[int]],
) -> list[Way]:
    """Find how a question is answered, those with the fewest cells first.

    Parameters
    ----------
    asked : Asked
        The question.
    span : Span
        The release.
    truth : mapping
        The levels for which each test on one key is true.
    groups : sequence of set of int
        The levels of each group key that are shown.
    """
    found = (_way(place, s, asked, span, truth, groups) for place, s in enumerate(span.sets))
    return sorted((w for w in found if w is not None), key=lambda w: (w.size, w.place))


def _way(
    place: int,
    released: AskedSet,
    asked: Asked,
    span: Span,
    truth: Mapping[Test, frozenset[int]],
    groups: Sequence[frozenset[int]],
) -> Way | None:
    own = span.reads.own[released.query]
    if not own <= {test.source for test in asked.tests}:
        return None
    rest = [test for test in asked.tests if test.source not in own]
    spanning = tuple(test for test in rest if len(test.keys) > 1)
    together = frozenset(n for test in spanning for n in test.keys)
    masks: dict[int, frozenset[int]] = {}
    for test in rest:
        if len(test.keys) == 1:
            (n,) = test.keys
            masks[n] = masks.get(n, truth[test]) & truth[test]
    for n in list(masks):
        if len(masks[n]) == span.levels[n].number:
            del masks[n]
    parts = {part.key: (i, part.form) for i, part in enumerate(released.parts)}
    if not together | masks.keys() | set(asked.groups) <= parts.keys():
        return None
    chosen = []
    for n, (i, form) in parts.items():
        if form.kind != "levels" and not span.levels[n].alone:
            return None  # not every combination with other keys has a row
        group = asked.groups.index(n) if n in asked.groups else None
        taken = masks.get(n)
        if group is not None:
            taken = groups[group] if taken is None else groups[group] & taken
        picks = _picks(form, span.levels[n], taken, grouped=group is not None)
        if picks is None or (n in together and form.kind != "levels"):
            return None
        ranged = form.kind in ("all_ranges", "ranges")
        whole = taken is None and form.kind == "levels"
        chosen.append(
            Chosen(n, released.shown.index(i), group, ranged, None if whole else tuple(picks))
        )
    size = prod(span.levels[c.key].number if c.picks is None else len(c.picks) for c in chosen)
    counted = not spanning and all(span.levels[c.key].alone for c in chosen)
    return Way(place, tuple(chosen), spanning, counted, size)


def _picks(
    form: Form, level: Level, taken: frozenset[int] | None, *, grouped: bool
) -> list[Pick] | None:
    """Write levels as cells of a form, each on its own if it is ``grouped``; ``None``: no way."""
    if form.kind == "levels":
        return [Pick(o if grouped else -1, o, o, 1) for o in sorted(taken or ())]
    levels = range(level.number) if taken is None else sorted(taken)
    if level.null and level.number - 1 in levels:
        return None  # NULL is in no prefix and in no range
    runs = [(o, o) for o in levels] if grouped else list(_runs(levels))
    found = []
    for first, last in runs:
        group = first if grouped else -1
        if form.kind == "prefix":
            found.append(Pick(group, last, last, 1))
            if first:
                found.append(Pick(group, first - 1, first - 1, -1))
            continue
        width = last - first + 1 if form.kind == "all_ranges" else form.width
        if (last - first + 1) % width:
            return None
        found += [Pick(group, o, o + width - 1, 1) for o in range(first, last + 1, width)]
    return found


def _runs(levels: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Take sorted numbers apart into runs of neighbours."""
    start: int | None = None
    previous = -2
    for o in levels:
        if o != previous + 1:
            if start is not None:
                yield start, previous
            start = o
        previous = o
    if start is not None:
        yield start, previous
