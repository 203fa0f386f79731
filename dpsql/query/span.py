"""What is kept of a release to find the questions that it answers, and its form in the catalogue.

`dpsql.query.ways` says how a question is answered from it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpsql.query.asked import AskedSet, Form, Part, Reads, WorkloadQuestion
from dpsql.query.ir import Expr

#: What was written in another form answers nothing.
_FORM = 3
#: Bytes of levels that are kept of one release: those of keys beyond it answer no conditions.
MAX_TEXTS = 64 << 20


@dataclass(frozen=True, slots=True)
class Level:
    """How many levels a key has, NULL included, which is the last; ``null`` says whether it is one.

    ``alone``: they do not depend on other keys, so that every combination of them with those has a
    cell.
    """

    number: int
    null: bool
    alone: bool

    @property
    def known(self) -> int:
        """How many are not NULL."""
        return self.number - self.null


@dataclass(frozen=True, slots=True)
class Span:
    """A release, as questions see it.

    Attributes
    ----------
    reads : Reads
        What rows it counts, normalised.
    sets : tuple of AskedSet
        Its grouping sets; what they have in WHERE is in ``reads.own``.
    groupings : tuple of int
        The value of the table's column ``grouping`` for each set.
    columns : tuple of (str, str or None)
        Names of its group columns: of one for ranges both ends.
    levels : tuple of Level
        Those of each key.
    several : bool
        Whether the table has a column that tells queries apart.
    attributes : tuple of (tuple of int, int)
        The keys of each attribute of the domain, and its size; see `dump`.
    meaning : str
        Which columns were read (`dpsql.engine.release_meaning`).
    """

    reads: Reads
    sets: tuple[AskedSet, ...]
    groupings: tuple[int, ...]
    columns: tuple[tuple[str, str | None], ...]
    levels: tuple[Level, ...]
    several: bool
    attributes: tuple[tuple[tuple[int, ...], int], ...]
    meaning: str


def dump(
    released: WorkloadQuestion,
    groupings: Sequence[int],
    texts: Mapping[int, Sequence[str | None]],
    attributes: Sequence[tuple[Sequence[int], int]],
    meaning: str,
    spread: Mapping[str, Any] | None = None,
) -> str:
    """Write what is kept of a release as JSON.

    Parameters
    ----------
    released : WorkloadQuestion
        What was asked.
    groupings : sequence of int
        Those of its sets.
    texts : mapping of int to sequence of str
        The values of each key that some query counts, in the order of its type.
    attributes : sequence of (keys, size)
        The domain.  Of an attribute whose levels are classes of values no key is named.
    meaning : str
        Which columns were read.
    spread : mapping, optional
        What standard errors follow from; kept as it is.
    """
    alone = {keys[0] for keys, _ in attributes if len(keys) == 1}
    room = MAX_TEXTS
    kept: list[Sequence[str | None] | None] = []
    for key in range(len(released.keys)):
        room -= sum(len(text.encode()) + 4 for text in texts[key] if text is not None)
        kept.append(texts[key] if room >= 0 else None)
    reads = released.reads
    return json.dumps(
        {
            "form": _FORM,
            "relations": reads.relations,
            "conditions": _trees(reads.conditions),
            "keys": [_tree(key) for key in reads.keys],
            "declared": reads.declared,
            "own": [_trees(conditions) for conditions in reads.own],
            "sets": [
                {
                    "query": s.query,
                    "parts": [[p.key, p.form.kind, p.form.width] for p in s.parts],
                    "shown": s.shown,
                }
                for s in released.sets
            ],
            "groupings": groupings,
            "columns": [
                (f"{c.name}_low", f"{c.name}_high") if ranged else (c.name, None)
                for c, ranged in zip(released.columns, released.ranged, strict=True)
            ],
            "several": any(s.query for s in released.sets),
            "sizes": [
                (len(texts[key]), None in texts[key], key in alone)
                for key in range(len(released.keys))
            ],
            "levels": kept,
            "attributes": attributes,
            "meaning": meaning,
            "spread": spread,
        }
    )


def load(text: str) -> Span | None:
    """Read what `dump` wrote, but for texts of levels and spread; ``None`` if it has another form.

    Its expressions are compared with others, and never run.
    """
    raw = json.loads(text)
    if raw.get("form") != _FORM:
        return None
    reads = Reads(
        tuple(raw["relations"]),
        _expressions(raw["conditions"]),
        tuple(map(_expression, raw["keys"])),
        tuple(raw["declared"]),
        tuple(map(_expressions, raw["own"])),
    )
    sets = tuple(
        AskedSet(
            s["query"],
            tuple(Part(key, Form(kind, width)) for key, kind, width in s["parts"]),
            tuple(s["shown"]),
            (),
        )
        for s in raw["sets"]
    )
    return Span(
        reads,
        sets,
        tuple(raw["groupings"]),
        tuple((low, high) for low, high in raw["columns"]),
        tuple(Level(*size) for size in raw["sizes"]),
        raw["several"],
        tuple((tuple(keys), size) for keys, size in raw["attributes"]),
        str(raw["meaning"]),
    )


def _trees(expressions: frozenset[Expr]) -> list[list[object]]:
    return sorted((_tree(e) for e in expressions), key=repr)


def _tree(e: Expr) -> list[object]:
    return [e.kind, e.type, [_tree(a) for a in e.args], e.data]


def _expressions(trees: Any) -> frozenset[Expr]:
    return frozenset(map(_expression, trees))


def _expression(tree: Any) -> Expr:
    kind, type_, args, data = tree
    if kind == "narrow" and len(data) == 2:  # as texts, which earlier versions kept
        (least, low), (_, high) = (end.split(" ", 1) for end in data)
        data = low.partition("::")[2], least, low.split("'")[1], high.split("'")[1]
    return Expr(kind, type_, tuple(map(_expression, args)), _hashable(data))


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value
