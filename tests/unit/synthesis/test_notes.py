"""What a copy lacks is told once for each kind, with every thing and every statement."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dpsql.synthesis.notes import DEFAULT, NULL, Note, nothing_learnt, together

KINDS = ["", NULL, DEFAULT, "triggers are left out: each is code of the original"]
NOTES = st.builds(
    lambda n, kind, of, way: Note(
        f"{n} of {of}: {kind}", kind, f"c{n}", of, way and f"SELECT {n};"
    ),
    st.integers(0, 99),
    st.sampled_from(KINDS),
    st.sampled_from(["s.t", "s.u"]),
    st.sampled_from(["", "yes"]),
)


@given(st.lists(NOTES, max_size=12, unique=True))
def test_everything_is_told_and_kinds_once(notes: list[Note]) -> None:
    told = together(notes)
    alone = [n for n in notes if not n.kind]
    assert len(told) == len({n.text for n in alone}) + len({n.kind for n in notes if n.kind})
    everything = " ".join(f"{t.message} {t.detail} {t.hint}" for t in told)
    for note in notes:
        assert note.about in everything or note.text in everything
        assert note.way in everything


def test_several_of_a_kind_name_their_tables() -> None:
    notes = [
        Note("column a of s.t is NULL", NULL, "a", "s.t", "SELECT 1;"),
        Note("x is random"),
        Note("column b of s.t is NULL", NULL, "b", "s.t"),
        Note("column c of s.u is NULL", NULL, "c", "s.u", "SELECT 2;"),
    ]
    first, second = together(notes)
    assert first.message == f"3 {NULL}"
    assert first.detail == "They are a, b of s.t; c of s.u."
    assert first.hint == "Its owner may run: SELECT 1; SELECT 2;"
    assert (second.message, second.detail, second.hint) == ("x is random", "", "")
    assert together(notes[:1])[0].message == "column a of s.t is NULL; SELECT 1;"


def test_many_statements_are_cut_short() -> None:
    notes = [Note(f"{n}", NULL, f"c{n}", "s.t", f"SELECT {n};") for n in range(30)]
    (told,) = together(notes)
    assert told.hint.endswith("SELECT 19; And so for 10 others.")


def test_what_has_keys_alone_is_not_refused() -> None:
    assert nothing_learnt([]) is None
    assert nothing_learnt([Note("x")]) is None
    refused = nothing_learnt([Note("x", NULL, "a", "s.t", "SELECT 1;")])
    assert refused is not None
    assert "a of s.t" in str(refused.detail)
    assert "SELECT 1;" in str(refused.hint)
    assert "placeholders => true" in str(refused.hint)
