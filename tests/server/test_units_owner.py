"""What owners of privacy units are told: what cannot be asked about, why, and the call that mends it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from tests.server.asking import major, refused, say

pytestmark = pytest.mark.server

SET_UP = """
create table person (id int primary key, email text unique);
insert into person select g, 'p' || g from generate_series(1, 300) g;
create table visit (id int primary key, person int not null references person);
insert into visit select g, g from generate_series(1, 300) g;
create table bill (visit int not null references visit);
insert into bill select generate_series(1, 300);
grant usage on schema public to alice;
select dp.grant_budget('alice', 1e5, 1);
"""
UNIT = "select dp.protect('person', privacy_unit => 'id')"


@pytest.fixture
def clinic(database: Any) -> Any:
    database.sql(SET_UP)
    return database


@pytest.fixture
def asker(clinic: Any) -> Any:
    with clinic.connect("alice") as alice:
        alice.autocommit = True
        alice.execute("set dp.epsilon = 20")
        yield alice


@dataclass(frozen=True, slots=True)
class Told:
    """A notice, whose texts psycopg keeps for the length of its handler only."""

    severity: str
    message: str
    detail: str
    hint: str


def told(database: Any, statement: str) -> list[Told]:
    """Return what a statement of the owner tells."""
    found: list[Told] = []

    def keep(d: psycopg.errors.Diagnostic) -> None:
        texts = (d.severity, d.message_primary, d.message_detail, d.message_hint)
        found.append(Told(*(text or "" for text in texts)))

    with database.connect() as session:
        session.autocommit = True
        session.add_notice_handler(keep)
        session.execute(statement)
    return found


def problems(database: Any) -> dict[str, str | None]:
    return dict(database.sql("select relation_name, problem from dp.relations"))


def near(connection: Any, relation: str, expected: int) -> bool:
    """At epsilon 20 noise beyond 60 has a probability far below 1e-9."""
    (value,) = connection.execute(f"select dp_count(*) from {relation}").fetchone()
    return abs(value - expected) < 60


def test_a_member_that_was_protected_itself_is_asked_about_when_that_ends(
    clinic: Any, asker: Any
) -> None:
    clinic.sql(UNIT)
    clinic.sql("select dp.protect('visit', privacy_unit => 'id')")
    notices = told(clinic, "select dp.unprotect('visit')")
    assert sorted(n.message for n in notices) == [
        f"relation public.{name} is protected for units of person.id alone from now on"
        for name in ("bill", "visit")
    ]
    assert problems(clinic) == {"person": None, "visit": None, "bill": None}
    assert near(asker, "visit", 300)
    assert near(asker, "bill", 300)


def test_a_missing_right_is_told_with_the_statement_that_gives_it(clinic: Any, asker: Any) -> None:
    clinic.sql(UNIT)
    clinic.sql("revoke select on visit from dp_executor")
    error = refused(asker, "select dp_count(*) from visit")
    assert error.diag.message_detail == "The reason: role dp_executor may not read it."
    grant = "GRANT SELECT ON public.visit TO dp_executor;"
    assert error.diag.message_hint == (
        f"Ask its owner to run {grant[:-1]}, or query other relations."
    )
    found = problems(clinic)
    assert found["visit"] == f"role dp_executor may not read it; to mend by {grant}"
    assert "public.visit, which leads to its privacy unit" in str(found["bill"])
    assert "PD012" in say(asker, "select dp_count(*) from bill")
    clinic.sql(grant)
    assert set(problems(clinic).values()) == {None}
    assert near(asker, "bill", 300)


@pytest.mark.parametrize(
    "statements",
    [
        "create table note (visit int not null references visit)",
        "create table note (visit int not null);"
        "alter table note add foreign key (visit) references visit",
        "create table head (id int primary key, visit int not null);"
        "create table note (head int not null references head);"
        "alter table head add foreign key (visit) references visit",
    ],
)
def test_tables_of_the_owner_that_come_later_are_asked_about(
    clinic: Any, asker: Any, statements: str
) -> None:
    clinic.sql(UNIT)
    found = told(clinic, statements)
    assert any("note belongs to privacy units and can be" in n.message for n in found)
    assert problems(clinic)["note"] is None
    assert near(asker, "note", 0)
    # what its owner takes back stays taken back
    clinic.sql("revoke select on note from dp_executor; alter table note add x int")
    assert "may not read it" in str(problems(clinic)["note"])


def test_tables_of_others_that_come_later_wait_for_their_owner(clinic: Any, asker: Any) -> None:
    clinic.sql(UNIT)
    clinic.sql("grant references on person to mallory; create schema m authorization mallory")
    clinic.sql("grant usage on schema m to alice")
    with clinic.connect("mallory") as mallory:
        mallory.execute("create table m.note (person int not null references public.person)")
    assert "GRANT SELECT ON m.note TO dp_executor" in str(problems(clinic)["note"])
    assert "PD012" in say(asker, "select dp_count(*) from m.note")
    for statement in str(problems(clinic)["note"]).split("to mend by ")[1].split("; "):
        clinic.sql(statement)
    assert problems(clinic)["note"] is None
    assert near(asker, "m.note", 0)


# what is wrong, what is said of it, and which statement of the hint mends it
WRONG = [
    (
        "alter table visit alter person drop not null",
        "of public.visit person can be NULL",
        "SELECT dp.link('public.visit', 'public.person', array['person'], nulls => 'excluded');",
    ),
    (
        "alter table visit alter person drop not null",
        "of public.visit person can be NULL",
        "ALTER TABLE public.visit ALTER person SET NOT NULL;",
    ),
    (
        "create table mail (email text); select dp.link('mail', 'person', array['email'],"
        " array['email'], nulls => 'excluded')",
        "the columns email of public.person, which lead to its privacy unit, are not",
        "ALTER TABLE public.person ALTER email SET NOT NULL;",
    ),
    (
        "create table mail (email text not null references person (email))",
        "the columns email of public.person, which lead to its privacy unit, are not",
        "ALTER TABLE public.person ALTER email SET NOT NULL;",
    ),
    (
        'create table mail ("The visit" int not null);'
        " select dp.link('mail', 'visit', array['The visit'])",
        "of public.mail no foreign key says that there is a parent",
        "SELECT dp.link('public.mail', 'public.visit', array['The visit'], nulls => 'excluded');",
    ),
    (
        "alter table visit add unique (id, person); create table mail (v int, p int,"
        " foreign key (p, v) references visit (person, id))",
        "of public.mail v, p can be NULL",
        "SELECT dp.link('public.mail', 'public.visit', array['v', 'p'], array['id', 'person'],"
        " nulls => 'excluded');",
    ),
]


@pytest.mark.parametrize(("wrong", "why", "mend"), WRONG)
def test_what_cannot_be_asked_about_is_told_with_what_mends_it(
    clinic: Any, asker: Any, wrong: str, why: str, mend: str
) -> None:
    """Told when units are declared and in ``dp.relations``, until the statement has run."""
    clinic.sql(wrong)
    notices = told(clinic, UNIT)
    found = {name: problem for name, problem in problems(clinic).items() if problem}
    member = "visit" if "of public.visit" in why else "mail"
    assert why in str(found[member])
    assert mend in str(found[member])
    assert "PD012" in say(asker, f"select dp_count(*) from {member}")
    hints = {n.message: n.hint for n in notices if "cannot be asked about yet" in n.message}
    assert len(hints) == len(found)
    assert (
        mend
        in hints[
            f"relation public.{member} belongs to privacy units, but cannot be asked about yet"
        ]
    )
    clinic.sql(mend)
    assert set(problems(clinic).values()) == {None}
    asker.execute(f"select dp_count(*) from {member}")


@pytest.mark.parametrize(
    ("reference", "columns"),
    [
        ("alter table {0} add up int references {0}", "up"),
        (
            'alter table {0} add "The one" text references {0} (code), add up int',
            "The one",
        ),
        (
            "alter table {0} add a int, add b text, add unique (id, code),"
            " add foreign key (b, a) references {0} (code, id)",
            "a, b",
        ),
    ],
)
@pytest.mark.parametrize("relation", ["person", "visit"])
def test_a_relation_that_refers_to_itself_is_explained(
    clinic: Any, asker: Any, relation: str, reference: str, columns: str
) -> None:
    clinic.sql(f"alter table {relation} add code text unique")
    clinic.sql(reference.format(relation))
    notices = [n for n in told(clinic, UNIT) if "cannot be asked about yet" in n.message]
    assert all("under" in n.hint for n in notices)
    for name in (relation, "bill"):
        problem = str(problems(clinic)[name])
        said = f"rows of public.{relation} refer to other rows of it by {columns}, "
        assert problem.startswith(said), problem
        assert "PD012" in say(asker, f"select dp_count(*) from {name}")
    clinic.sql(problem[problem.index("SELECT dp.link(") :])
    assert set(problems(clinic).values()) == {None}
    assert near(asker, relation, 300)
    assert near(asker, "bill", 300)


@pytest.mark.parametrize(
    ("column", "why"),
    [
        ("person.id", "public.person.id, which names its privacy unit, can be NULL"),
        ("visit.person", "of public.visit person can be NULL"),
    ],
)
def test_what_is_not_null_but_not_valid_may_be_null(
    clinic: Any, asker: Any, column: str, why: str
) -> None:
    """Such constraints are from PostgreSQL 18 on; their row in the catalogue can be made before."""
    clinic.sql(UNIT)
    assert near(asker, "bill", 300)
    relation, name = column.split(".")
    row = {
        "oid": "999999",
        "conname": "'later'",
        "connamespace": "'public'::regnamespace",
        "contype": "'n'",
        "condeferrable": "false",
        "condeferred": "false",
        "convalidated": "false",
        "conrelid": f"'{relation}'::regclass",
        "contypid": "0",
        "conindid": "0",
        "conparentid": "0",
        "confrelid": "0",
        "confupdtype": "' '",
        "confdeltype": "' '",
        "confmatchtype": "' '",
        "conislocal": "true",
        "coninhcount": "0",
        "connoinherit": "false",
        "conkey": "array[(select attnum from pg_attribute where attrelid ="
        f" '{relation}'::regclass and attname = '{name}')]::int2[]",
    }
    if major(clinic) >= 18:
        row |= {"conenforced": "true", "conperiod": "false"}
    clinic.sql(
        "set allow_system_table_mods = on;"
        f"insert into pg_constraint ({', '.join(row)}) select {', '.join(row.values())}"
    )
    assert why in str(problems(clinic)[relation])
    error = refused(asker, f"select dp_count(*) from {relation}")
    assert error.sqlstate == "PD012"
    clinic.sql(
        "set allow_system_table_mods = on; update pg_constraint set convalidated = true"
        " where oid = 999999"
    )
    assert set(problems(clinic).values()) == {None}


def test_what_a_link_leaves_to_mend_is_told(clinic: Any) -> None:
    clinic.sql(UNIT)
    clinic.sql("create table mail (p int); create table item (m int)")
    (notice,) = told(clinic, "select dp.link('mail', 'person', array['p'])")
    assert "mail belongs to privacy units, but cannot be asked about yet" in str(notice.message)
    assert "nulls => 'excluded'" in notice.hint
    assert told(clinic, "select dp.link('mail', 'person', array['p'], nulls => 'excluded')") == []


def test_no_problem_is_told_exactly_where_questions_are_answered(clinic: Any, asker: Any) -> None:
    clinic.sql(
        "create table a (id int primary key, person int references person);"
        "create table b (a int not null references a); create table c (b int);"
        "create table d (email text not null references person (email)); create table e (d text);"
        "create table f (id int primary key, visit int not null references visit deferrable);"
        "create table g (f int not null references f) partition by range (f);"
        "create table g1 partition of g for values from (0) to (9);"
    )
    clinic.sql(UNIT)
    clinic.sql(
        "select dp.link('c', 'b', array['b'], array['a'], nulls => 'excluded');"
        "select dp.link('e', 'd', array['d'], array['email'], nulls => 'excluded')"
    )
    found = problems(clinic)
    assert set(found) == {"person", "visit", "bill", *"abcdefg"}
    answered = {name for name in found if "PD" not in say(asker, f"select dp_count(*) from {name}")}
    assert answered == {name for name, problem in found.items() if problem is None}
    assert answered == {"person", "visit", "bill"}


@pytest.mark.parametrize("nested", [False, True])
def test_a_second_kind_of_unit_is_told_with_what_is_refused_for_it(
    clinic: Any, asker: Any, nested: bool
) -> None:
    clinic.sql(
        "create table doctor (id int primary key); alter table visit add doctor int not null"
        " default 1; insert into doctor values (1); alter table visit add foreign key (doctor)"
        " references doctor"
    )
    assert told(clinic, UNIT) == []
    relation, shared = ("visit" if nested else "doctor"), "public.bill, public.visit"
    (warning,) = told(clinic, f"select dp.protect('{relation}', privacy_unit => 'id')")
    assert warning.severity == "WARNING"
    assert f"rows of {shared} belong to several privacy units" in warning.message
    assert "only counts, sums and averages" in warning.detail
    assert "PD011" in say(asker, "select doctor, dp_count(*) from visit group by doctor")
    assert "PD011" in say(asker, "select dp_median(doctor, 0, 1) from visit")
    assert "PD" not in say(asker, "select dp_sum(doctor, 0, 1) from visit")
    # changing caps tells nothing again
    assert (
        told(clinic, f"select dp.protect('{relation}', privacy_unit => 'id', epsilon => 9999)")
        == []
    )


def test_ways_to_units_name_every_column(clinic: Any) -> None:
    clinic.sql(
        'create table "Edge" (src int not null references person, "To" int not null references person);'
        "create table pair (a int, b int, person int not null references person, primary key (a, b));"
        "create table half (a int not null, b int not null, foreign key (b, a) references pair (b, a));"
        "create table loose (person int references person)"
    )
    clinic.sql(UNIT)
    clinic.sql("alter table person rename id to number")
    assert dict(clinic.sql("select relation_name, privacy_unit from dp.relations")) == {
        "person": "person.number",
        "visit": "person.number by visit.person",
        "bill": "person.number by bill.visit, visit.person",
        "Edge": 'person.number by "Edge"."To"; person.number by "Edge".src',
        "pair": "person.number by pair.person",
        "half": "person.number by half.(a, b), pair.person",
        "loose": "person.number by loose.person",
    }


def test_what_is_gone_is_told_of_every_relation(clinic: Any) -> None:
    clinic.sql(
        "alter table person add number int; update person set number = id;"
        "alter table person alter number set not null;"
        "create table mail (v int not null); select dp.link('mail', 'visit', array['v'])"
    )
    clinic.sql("select dp.protect('person', privacy_unit => 'number')")
    clinic.sql("alter table person drop number; alter table mail drop v")
    found = problems(clinic)
    assert set(found) == {"person", "visit", "bill", "mail"}
    assert all("is gone" in str(problem) for problem in found.values())


def test_what_members_do_not_have_is_asked_of_their_root(clinic: Any) -> None:
    clinic.sql(UNIT)
    owner = clinic.connect()
    owner.autocommit = True
    for call in ("set_root_cap('visit', 10)", "allow_heuristic('visit')"):
        error = refused(owner, f"select dp.{call}")
        assert error.sqlstate == "PD040"
        assert f"Call dp.{call.split('(')[0]} for public.person." == error.diag.message_hint
    clinic.sql("create table other (a int)")
    error = refused(owner, "select dp.set_root_cap('other', 10)")
    assert error.diag.message_hint == "SELECT dp.protect('public.other');"


def test_a_cap_that_is_spent_already_is_told_to_owner_and_analyst(clinic: Any, asker: Any) -> None:
    clinic.sql(UNIT)
    asker.execute("select dp_count(*) from visit")
    assert told(clinic, "select dp.set_root_cap('person', 30)") == []
    error = refused(asker, "select dp_count(*) from bill")
    assert "privacy budget of relation public.person exceeded" in str(error)
    assert "smaller dp.epsilon" in str(error.diag.message_hint)
    for call in (
        "dp.set_root_cap('person', 10)",
        "dp.set_root_cap('person', 20)",
        "dp.set_root_cap('person', 10, 1, composition => 'zcdp')",
        "dp.protect('person', privacy_unit => 'id', epsilon => 15)",
    ):
        asker.execute("select dp_count(*) from visit")  # stored, whatever the cap is
        warnings = [n for n in told(clinic, f"select {call}") if n.severity == "WARNING"]
        assert [n.message for n in warnings] == [
            "nothing is left to spend on relation public.person"
        ]
        error = refused(asker, "select dp_count(*) from bill")
        assert error.sqlstate == "PD001"
        assert "leaves nothing for any role" in str(error.diag.message_detail)
        assert "smaller" not in str(error.diag.message_hint)
        assert "dp.set_root_cap('public.person'" in str(error.diag.message_hint)
    assert "public.person" in say(
        asker, "select * from dp.estimate('select dp_count(*) from bill')"
    )


def test_caps_of_units_are_changed_without_naming_the_unit(clinic: Any, asker: Any) -> None:
    clinic.sql(UNIT)
    asker.execute("select dp_count(*) from visit")
    error = refused(clinic.connect(), "select dp.protect('person', epsilon => 5)")
    assert error.sqlstate == "PD040"
    assert error.diag.message_hint == (
        "Call dp.protect with privacy_unit => 'id', as before, or dp.set_root_cap to change the"
        " caps alone."
    )


def test_a_unit_that_ends_unspent_is_told(clinic: Any) -> None:
    clinic.sql(UNIT)
    found = told(clinic, "select dp.protect('person')")
    assert "protected row by row from now on" in found[0].message
    assert found[0].severity == "WARNING"
    assert sum("cannot be asked about any more" in n.message for n in found) == 2


def test_who_has_no_budget_sees_no_row(clinic: Any, asker: Any) -> None:
    clinic.sql(UNIT)
    clinic.sql("revoke dp_owner from bob")  # which another test's database may have left
    assert len(asker.execute("select * from dp.budgets").fetchall()) == 1
    bob = clinic.connect("bob")
    assert bob.execute("select * from dp.budgets").fetchall() == []
    # nor does a role of which the ledger knows something, but that is no analyst any more
    clinic.sql("select dp.grant_budget('bob', 1, 1e-6, 'zcdp', '1 month')")
    clinic.sql("revoke dp_analyst from bob")
    assert [row[1] for row in clinic.connect("bob").execute("select * from dp.budgets")] == ["bob"]
