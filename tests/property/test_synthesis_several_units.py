"""What one unit changes of a synthesis where rows belong to several units: of two roots, or of one.

Ratings belong to a user and to a movie, transfers to two users, views to a user and to the director
of a film; some rows refer to rows of their own
table, joined to which they belong to both units.  They are cut off by one way, and keys bound the rows of units by the others
(`dpsql.engine.synthesis_changes`).  On random rows, through the product's own statements, every
unit of every root is deleted with all its rows, and each exact vector may change in L1 by no more
than its noise is made for (PRIVACY.md sections 1 and 8).

Nothing but the cases is random: the inequalities hold for every seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dpsql.engine import synthesis_changes, synthesis_statements
from dpsql.engine.request import Role
from dpsql.engine.synthesis_changes import (
    NONE,
    Way,
    changed_degrees,
    changed_rows,
    raised,
    raised_links,
)
from dpsql.relation import UnitPath
from tests.property.test_synthesis_sensitivity import Case, Silent, changes
from tests.server.copying import reader, services_of

pytestmark = pytest.mark.server

CASES = 2
USERS, MOVIES, DIRECTORS = range(1, 8), range(1, 5), range(1, 4)
TABLES = ("u", "m", "r", "t", "x", "y", "f", "a", "s", "d", "k", "v", "w")
SCHEMA = """
create table public.place (p_id int primary key, p_big boolean not null);
create table public.u (u_id int primary key, u_kind boolean not null,
  u_boss int constraint own references public.u);
create table public.m (m_id int primary key, m_kind boolean not null);
create table public.r (r_id int primary key, r_u int not null references public.u on delete cascade,
  r_m int not null references public.m on delete cascade, r_flag boolean not null);
create table public.t (t_r int not null references public.r on delete cascade, t_flag boolean);
create table public.x (x_from int not null references public.u on delete cascade,
  x_to int not null references public.u on delete cascade, x_flag boolean not null);
create table public.y (y_from int not null references public.u on delete cascade,
  y_to int not null references public.u on delete cascade, y_flag boolean not null);
create table public.f (f_u int not null references public.u on delete cascade,
  f_m int not null references public.m on delete cascade, f_flag boolean not null);
create table public.a (a_id int primary key, a_u int not null references public.u on delete cascade);
create table public.s (s_a int not null references public.a on delete cascade,
  s_m int not null references public.m on delete cascade, s_place int not null references public.place);
create table public.w (w_id int primary key, w_u int not null references public.u on delete cascade,
  w_on int constraint own references public.w, w_flag boolean not null);
create table public.d (d_id int primary key);
create table public.k (k_id int primary key, k_d int not null references public.d on delete cascade,
  k_flag boolean not null);
create table public.v (v_u int not null references public.u on delete cascade,
  v_k int not null references public.k on delete cascade);
insert into public.place select i, i % 2 = 0 from generate_series(1, 300) i;
"""
#: Columns whose values may repeat so often.
BOUNDS = {
    ("u", "u_boss"): 3,
    ("w", "w_u"): 3,
    ("w", "w_on"): 2,
    ("r", "r_m"): 7,
    ("t", "t_r"): 2,
    ("x", "x_to"): 4,
    ("y", "y_from"): 3,
    ("y", "y_to"): 3,
    ("f", "f_u"): 2,
    ("f", "f_m"): 3,
    ("s", "s_m"): 5,
    ("k", "k_d"): 2,
    ("v", "v_k"): 3,
}
DECLARED = [
    "select dp.declare_public('public.place')",
    "select dp.link('public.u', 'public.u', array['u_boss'], follow => false)",
    "select dp.link('public.w', 'public.w', array['w_on'], follow => false)",
    "select dp.protect('public.u', privacy_unit => 'u_id')",
    "select dp.protect('public.m', privacy_unit => 'm_id')",
    "select dp.protect('public.d', privacy_unit => 'd_id')",
    *(
        f"select dp.set_degree_bound('public.{table}', array['{column}'], {bound})"
        for (table, column), bound in BOUNDS.items()
    ),
]


class Rows:
    """Writes rows that keep the bounds; of the first units as many as these let."""

    def __init__(self, random_: random.Random) -> None:
        self.random = random_
        self.lines: list[str] = []
        self.used: dict[tuple[str, str, int], int] = {}

    def insert(self, table: str, columns: str, *values: object) -> bool:
        """Insert a row if no bound forbids it."""
        names = columns.split()
        places: list[tuple[str, str, int]] = [
            (table, c, int(str(v)))
            for c, v in zip(names, values, strict=True)
            if (table, c) in BOUNDS and v != "null"
        ]
        if any(self.used.get(place, 0) >= BOUNDS[place[:2]] for place in places):
            return False
        for place in places:
            self.used[place] = self.used.get(place, 0) + 1
        shown = ", ".join(map(str, values))
        self.lines.append(f"insert into public.{table} ({', '.join(names)}) values ({shown})")
        return True

    def flag(self) -> bool:
        return self.random.random() < 0.5

    def some(self, of: range, most: int) -> list[int]:
        return [self.random.choice(of) for _ in range(self.random.randint(1, most))]

    def replies(self) -> None:
        """Let rows of users refer to rows of the first user, and to others."""
        rows = 0
        for user in USERS:
            for _ in range(3 if user == 1 else self.random.randint(1, 3)):
                on = self.random.choice([1, 2, 3]) if user > 1 else "null"
                while not self.insert("w", "w_id w_u w_on w_flag", rows + 1, user, on, user == 1):
                    on = "null"
                rows += 1

    def all(self) -> list[str]:
        """Return the statements."""
        for user in USERS:
            boss = 1 if 1 < user < 5 else self.random.choice([2, 3, "null"]) if user > 4 else "null"
            while not self.insert("u", "u_id u_kind u_boss", user, user == 1, boss):
                boss = "null"
        for movie in MOVIES:
            self.insert("m", "m_id m_kind", movie, movie == 1)
        for director in DIRECTORS:
            self.insert("d", "d_id", director)
        films = 0
        for director in DIRECTORS:
            for _ in range(2 if director == 1 else self.random.randint(0, 2)):
                films += self.insert("k", "k_id k_d k_flag", films + 1, director, director == 1)
        ratings = accounts = 0
        self.replies()
        for user in USERS:
            for movie in [1, *self.some(range(2, 5), 4)]:
                if self.insert("r", "r_id r_u r_m r_flag", ratings + 1, user, movie, movie == 1):
                    ratings += 1
                    for _ in range(self.random.randrange(3)):
                        self.insert("t", "t_r t_flag", ratings, self.flag())
            for other in [1, *self.some(USERS, 4)]:
                self.insert("x", "x_from x_to x_flag", user, other, other == 1)
            for other in USERS:
                if 1 in (user, other) and user != other:
                    self.insert("y", "y_from y_to y_flag", user, other, self.flag())
            for movie in self.some(range(1, 5), 3):
                self.insert("f", "f_u f_m f_flag", user, movie, self.flag())
            for _ in range(self.random.randint(1, 3)):
                accounts += 1
                self.insert("a", "a_id a_u", accounts, user)
                for movie in [1, *self.some(range(1, 5), 3)]:
                    at = self.random.randint(1, 3)
                    self.insert("s", "s_a s_m s_place", accounts, movie, at)
            for film in self.some(range(1, films + 1), 4):
                self.insert("v", "v_u v_k", user, film)
        return self.lines


class Several(Case):
    """The schema with rows, and the task of its copy."""

    def __init__(self, database: Any, random_: random.Random) -> None:
        database.sql(SCHEMA)
        database.sql(";\n".join(Rows(random_).all()))
        with database.connect() as owner:
            for statement in DECLARED:
                owner.execute(statement)
        self.session = reader(database)
        self.services = services_of(self.session)
        self.silent = self.services.noise = Silent()
        # not of f and y, of which keys bound everything
        d_max = {table: random_.randint(1, 3) for table in ("r", "t", "x", "a", "s", "v")}
        self.tasks = {"unit": self._task(TABLES, d_max)}

    def without(self, condition: str, whose: str) -> dict[str, tuple[Any, Any]]:
        """Return the vectors of a neighbour; rows may be left that refer to what is gone."""
        self.session.execute("begin")
        try:
            self.session.execute("reset role")
            for table in ("u", "w"):
                self.session.execute(f"alter table public.{table} drop constraint own")
            self.session.execute(f"delete from public.{condition}")
            self.session.execute("set role dp_executor")
            return self.vectors(whose)
        finally:
            self.session.execute("rollback")

    def neighbours(self) -> Iterator[tuple[str, str]]:
        for table, units in (("u", USERS), ("m", MOVIES), ("d", DIRECTORS)):
            yield from (("unit", f"{table} where {table}_id = {unit}") for unit in units)


def test_what_noise_hides_anyway_counts() -> None:
    users, movies, apart = UnitPath(1, (), "u"), UnitPath(2, (), "m"), Way(UnitPath(1, (), "x"), 3)
    unbounded, bounded = Way(users), Way(movies, 5)
    assert raised((unbounded, bounded), 3) == 10
    assert raised((unbounded, bounded), 12) == 12
    assert raised((unbounded, apart), 2) == 2
    assert raised((unbounded, bounded, apart), 2) == 4
    assert raised((Way(users, 7), bounded), 3) == 7
    assert raised((unbounded,), 3) == raised((), 3) == 3
    for ways in ((unbounded, bounded), (unbounded, bounded, apart), (Way(users, 7), bounded)):
        for cut in range(1, 20):
            before = changed_rows(ways, cut).beside(cut)
            after = raised(ways, cut)
            assert changed_rows(ways, after).beside(after) <= before
            links = changed_degrees(ways, "key", cut, whole=False).beside(2 * cut)
            after = raised_links(ways, "key", cut)
            assert changed_degrees(ways, "key", after, whole=False).beside(2 * after) <= links


def learnt(case: Several) -> set[str]:
    """Name what is measured, and of which tables."""
    return set(case.vectors("unit"))


def test_no_unit_of_any_root_changes_more_than_noise_hides(server: Any) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201
    random_ = random.Random(seed)
    for _ in range(CASES):
        database = server.create_database()
        case = Several(database, random_)
        known = learnt(case)
        # both references of every link table, with their marginals
        for table, references in {"r": 2, "t": 1, "x": 2, "y": 2, "f": 2, "s": 3, "v": 2}.items():
            assert f"TablePart {table}" in known
            degrees = [n for n in known if n.startswith(f"DegreePart {table} ")]
            assert len(degrees) == references, known
        assert {"LinkPart r 0", "LinkPart r 1", "LinkPart f 0", "LinkPart v 1"} <= known
        assert {"LinkPart u 0", "LinkPart w 0", "LinkPart w 1"} <= known
        worst = changes(case)
        for name, (moved, allowed) in worst.items():
            assert moved**2 <= allowed, (name, moved, allowed, worst)
        # the first user has all six transfers that two bounds of three allow
        assert worst["TablePart y"] == (6, 36)
        # the first user is the boss of three; who is besides referring to a boss of his own makes 4
        assert worst["LinkPart u 0"][0] >= 3
        server.drop_database(database)


def test_every_root_pays(server: Any) -> None:
    database = server.create_database()
    case = Several(database, random.Random(7))
    roots = {root for (root,) in database.sql("select id from dp.root")}
    assert len(roots) == 3
    assert set(case.tasks["unit"].units.roots) == roots
    role = Role(1, "alice")
    assert set(case.tasks["unit"].charge(role).roots) == roots
    server.drop_database(database)


def _others_are_nobody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(synthesis_statements, "changed_rows", lambda *_: NONE)


def _nothing_takes_the_place(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(synthesis_changes, "_all_kept", lambda *_: True)


def _one_way_of_a_root(patch: pytest.MonkeyPatch) -> None:
    """Of two ways to units of one root only the first counts."""
    right = synthesis_changes._others

    def apart(ways: Any, changed: Any) -> Any:
        found = right(ways, changed)
        return synthesis_changes.Others(0, max(found.same, found.apart))

    patch.setattr(synthesis_changes, "_others", apart)


def _parents_only(patch: pytest.MonkeyPatch) -> None:
    """A unit takes parents, and nothing happens to those that stay."""
    right = synthesis_changes._degrees
    patch.setattr(synthesis_changes, "_degrees", lambda *a, **k: min(1, right(*a, **k)))


MUTANTS: dict[Callable[[pytest.MonkeyPatch], None], set[str]] = {
    _others_are_nobody: {"TablePart", "LinkPart u", "LinkPart w"},
    _nothing_takes_the_place: {"Part r"},
    _one_way_of_a_root: {"TablePart y"},
    _parents_only: {"DegreePart"},
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_are_found(
    server: Any, mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    database = server.create_database()
    case = Several(database, random.Random(7))
    found = {n: (m, a) for n, (m, a) in changes(case).items() if m**2 > a}
    server.drop_database(database)
    for part in MUTANTS[mutant]:
        assert any(part in name for name in found), (part, found)
