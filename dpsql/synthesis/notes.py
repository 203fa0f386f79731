"""What a copy lacks or has otherwise than the original, told together where it is of one kind.

Public facts only (PRIVACY.md section 2 (c)).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dpsql.errors import MissingDeclaration

#: Statements that one message writes out.
_MOST_STATEMENTS = 20


@dataclass(frozen=True, slots=True)
class Note:
    """One thing to tell whoever asks for a copy.

    Attributes
    ----------
    text : str
        What is told of it alone.
    kind : str
        What is told of several of the kind, behind their number; empty: each is told alone.
    about, of : str
        The thing, and the table that it belongs to.
    way : str
        The statement that helps, if there is one.
    """

    text: str
    kind: str = ""
    about: str = ""
    of: str = ""
    way: str = ""

    def __str__(self) -> str:
        """Return all of it as one line."""
        return f"{self.text}; {self.way}" if self.way else self.text


@dataclass(frozen=True, slots=True)
class Told:
    """A message with its detail and hint, which may be empty."""

    message: str
    detail: str = ""
    hint: str = ""


def together(notes: Iterable[Note]) -> list[Told]:
    """Tell notes of one kind at once, in the order of the first of each."""
    kinds: dict[str, list[Note]] = {}
    for note in dict.fromkeys(notes):
        kinds.setdefault(note.kind or note.text, []).append(note)
    return [
        Told(str(same[0]))
        if len(same) == 1
        else Told(f"{len(same)} {kind}", f"They are {listed(same)}.", statements(same))
        for kind, same in kinds.items()
    ]


def listed(notes: Sequence[Note]) -> str:
    """List what notes are about, by table."""
    tables: dict[str, list[str]] = {}
    for note in notes:
        tables.setdefault(note.of, []).append(note.about)
    return "; ".join(f"{', '.join(names)} of {table}" for table, names in tables.items())


def statements(notes: Sequence[Note]) -> str:
    """Write the statements that help, as a hint to the owner."""
    found = [note.way for note in notes if note.way]
    if not found:
        return ""
    more = len(found) - _MOST_STATEMENTS
    rest = f" And so for {more} others." if more > 0 else ""
    return f"Its owner may run: {' '.join(found[:_MOST_STATEMENTS])}{rest}"


def nothing_learnt(notes: Iterable[Note]) -> MissingDeclaration | None:
    """Refuse a copy of which no column is learnt, if there are columns that could be.

    It would cost as much as any other, and have NULL and defaults beside its keys.
    """
    unknown = [note for note in dict.fromkeys(notes) if note.kind in (NULL, DEFAULT)]
    if not unknown:
        return None
    return MissingDeclaration(
        "nothing public is known of any column that is to be copied",
        detail="The copy would have keys, links and as many rows, but nothing is learnt of"
        f" {listed(unknown)}: they would be NULL or their defaults.",
        hint=" ".join(
            text
            for text in (
                statements(unknown),
                "Or call it with placeholders => true, to pay for keys, links and numbers of rows"
                " alone.",
            )
            if text
        ),
    )


#: Kinds of columns of whose values nothing public is known.
NULL = "columns are NULL in every row: nothing public is known of their values"
DEFAULT = "columns have their defaults in every row: nothing public is known of their values"
MADE_UP = "columns are made up: nothing public is known of their values"
CONSTANT = "columns have one value in every row: nothing public is known of their values"
NO_NULL = "columns are NULL in no row: their declared domains have no NULL (includes_null => true)"
KEYS = "columns are made up, since keys have them: their declared values are not drawn"
