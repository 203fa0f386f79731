"""What can be declared, by whom, and what survives."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

QUOTED = '"Ünï ""quoted"""'


@pytest.fixture
def owner(database: Any) -> Any:
    database.sql("grant dp_owner to owner1")
    database.sql("create schema own authorization owner1")
    connection = database.connect("owner1")
    connection.execute("set search_path = own")
    connection.execute(
        f"""
        create table plain (id integer primary key, name text);
        create table parent (id integer) partition by range (id);
        create table part partition of parent for values from (0) to (10);
        create table base (id integer);
        create table child () inherits (base);
        create table guarded (id integer);
        alter table guarded enable row level security;
        create temporary table passing (id integer);
        create materialized view stored as select 1 as id;
        create view shown as select id from plain;
        create table {QUOTED} ("Çol umn" text);
        """
    )
    return connection


def refusal(connection: Any, sql: str) -> psycopg.Error:
    with pytest.raises(psycopg.Error) as caught:
        connection.execute(sql)
    return caught.value


@pytest.mark.parametrize("function", ["protect", "declare_public"])
@pytest.mark.parametrize(
    ("relation", "reason"),
    [
        ("part", "partition"),
        ("child", "inherits"),
        ("guarded", "row-level security"),
        ("passing", "temporary"),
        ("stored", "materialized view"),
        ("shown", "a view"),
    ],
)
def test_relations_that_cannot_be_declared_are_refused_with_a_hint(
    owner: Any, function: str, relation: str, reason: str
) -> None:
    error = refusal(owner, f"select dp.{function}('{relation}')")
    assert error.sqlstate == "PD040"
    assert reason in str(error.diag.message_primary)
    assert error.diag.message_hint


@pytest.mark.parametrize("relation", ["pg_catalog.pg_class", "dp.spend"])
def test_system_relations_are_refused_even_to_superusers(database: Any, relation: str) -> None:
    assert (
        refusal(database.connect(), f"select dp.declare_public('{relation}')").sqlstate == "PD040"
    )


def test_partitioned_and_quoted_relations_are_declared(owner: Any) -> None:
    owner.execute("select dp.protect('parent')")
    owner.execute("select dp.protect(%s)", (QUOTED,))
    rows = owner.execute("select relation_name, kind, problem from dp.relations").fetchall()
    assert sorted(rows) == [("parent", "protected", None), ('Ünï "quoted"', "protected", None)]


def test_what_an_owner_allowed_is_shown_beside_the_relation(owner: Any) -> None:
    shown = "select answer_lifetime::text, heuristic_allowed from dp.relations"
    owner.execute("select dp.protect('plain')")
    assert owner.execute(shown).fetchall() == [(None, False)]
    owner.execute("select dp.set_answer_lifetime('plain', '2 days'), dp.allow_heuristic('plain')")
    assert owner.execute(shown).fetchall() == [("2 days", True)]
    owner.execute("select dp.unprotect('plain')")
    owner.execute("select dp.declare_public('plain')")
    assert owner.execute(shown).fetchall() == [(None, None)]


def test_a_declared_relation_whose_rows_become_guarded_shows_its_problem(owner: Any) -> None:
    owner.execute("select dp.protect('plain')")
    owner.execute("alter table plain enable row level security")
    assert owner.execute("select problem from dp.relations").fetchall() == [
        ("it has row-level security",)
    ]


@pytest.mark.parametrize(
    "arguments", ["epsilon => 0", "epsilon => 'NaN'", "epsilon => 'Infinity'", "delta => 2"]
)
def test_meaningless_caps_are_refused(owner: Any, arguments: str) -> None:
    assert refusal(owner, f"select dp.protect('plain', {arguments})").sqlstate == "PD040"


def test_only_an_owner_who_administers_may_declare(owner: Any, database: Any) -> None:
    database.sql("create table public.other (id integer)")
    assert refusal(owner, "select dp.protect('public.other')").sqlstate == "PD070"
    database.sql("revoke dp_owner from owner1")
    assert refusal(owner, "select dp.protect('plain')").sqlstate == "42501"


def test_set_role_takes_administration_away(owner: Any, database: Any) -> None:
    database.sql("grant alice to owner1")
    owner.execute("set role alice")
    assert refusal(owner, "select dp.grant_budget('bob', 1)").sqlstate == "42501"
    database.sql("revoke alice from owner1")


def test_executor_reads_declared_relations_only(owner: Any, database: Any) -> None:
    def readable() -> bool:
        return bool(
            database.sql("select has_table_privilege('dp_executor', 'own.plain', 'select')")[0][0]
        )

    assert not readable()
    owner.execute("select dp.protect('plain')")
    assert readable()
    owner.execute("select dp.unprotect('plain')")
    assert not readable()
    assert not database.sql("select has_schema_privilege('dp_executor', 'own', 'usage')")[0][0]


@pytest.mark.parametrize(
    "between",
    [
        "select 1",
        "alter table plain rename to renamed; alter table renamed rename to plain",
        "drop table plain cascade; create table plain (id integer)",
    ],
)
def test_a_root_survives_unprotect_rename_and_drop(owner: Any, database: Any, between: str) -> None:
    owner.execute("select dp.protect('plain')")
    before = database.sql("select root from dp.policy where kind = 'protected'")
    owner.execute("select dp.unprotect('plain')")
    owner.execute(between)
    owner.execute("select dp.protect('plain')")
    assert database.sql("select root from dp.policy where kind = 'protected'") == before


def test_a_root_survives_the_drop_of_a_protected_relation(owner: Any, database: Any) -> None:
    owner.execute("select dp.protect('plain')")
    before = database.sql("select root from dp.policy")
    owner.execute("drop table plain cascade; create table plain (id integer)")
    assert owner.execute("select count(*) from dp.relations").fetchone() == (0,)
    owner.execute("select dp.protect('plain')")
    assert database.sql("select root from dp.policy") == before


def test_a_protected_relation_must_be_unprotected_before_it_is_published(owner: Any) -> None:
    owner.execute("select dp.protect('plain')")
    assert refusal(owner, "select dp.declare_public('plain')").sqlstate == "PD040"


def test_a_view_needs_declared_base_relations(owner: Any) -> None:
    error = refusal(owner, "select dp.declare_view('shown')")
    assert error.sqlstate == "PD012"
    assert "plain" in str(error.diag.message_detail)
    owner.execute("select dp.protect('plain')")
    owner.execute("select dp.declare_view('shown')")
    owner.execute("select dp.undeclare_view('shown')")
    assert refusal(owner, "select dp.undeclare_view('shown')").sqlstate == "PD040"


UNANSWERABLE = "select id from plain left join plain as p using (id)"


def told(error: psycopg.Error) -> tuple[str | None, ...]:
    diag = error.diag
    return (diag.sqlstate, diag.message_primary, diag.message_detail, diag.message_hint)


def test_a_view_that_no_question_could_name_is_refused_and_leaves_nothing(
    owner: Any, database: Any
) -> None:
    owner.execute("select dp.protect('plain')")
    owner.execute(f"create view outer_join as {UNANSWERABLE}")
    state = "select * from dp.policy", "select * from dp.catalog_version"
    before = [database.sql(sql) for sql in state]
    refused = told(refusal(owner, "select dp.declare_view('outer_join')"))
    assert [database.sql(sql) for sql in state] == before
    # one that comes to be such a view later is refused in the same words when it is asked about
    owner.execute("create or replace view outer_join as select id from plain")
    owner.execute("select dp.declare_view('outer_join')")
    owner.execute("select * from dp.explain('select public.dp_count(*) from outer_join')")
    owner.execute(f"create or replace view outer_join as {UNANSWERABLE}")
    assert told(refusal(owner, "select public.dp_count(*) from outer_join")) == refused
    assert told(refusal(owner, "select dp.declare_view('outer_join')")) == refused
    owner.execute("select dp.undeclare_view('outer_join')")


def test_a_view_over_what_can_be_mended_is_declared(owner: Any) -> None:
    owner.execute("select dp.protect('plain'); alter table plain enable row level security")
    owner.execute("select dp.declare_view('shown')")
    explain = "select * from dp.explain('select public.dp_count(*) from shown')"
    assert refusal(owner, explain).sqlstate == "PD012"
    owner.execute("alter table plain disable row level security")
    owner.execute(explain)


def test_every_declaration_changes_the_version(owner: Any, database: Any) -> None:
    seen = set()
    for statement in (
        "select dp.protect('plain')",
        "select dp.set_domain('plain', 'id', 1, 10)",
        "select dp.drop_domain('plain', 'id')",
        "select dp.unprotect('plain')",
    ):
        owner.execute(statement)
        seen.add(database.sql("select version from dp.catalog_version")[0][0])
    assert len(seen) == 4


def test_budgets_leave_stored_answers_valid(owner: Any, database: Any) -> None:
    owner.execute("select dp.protect('plain')")
    before = database.sql("select version from dp.catalog_version")
    owner.execute("select dp.grant_budget('alice', 1)")
    owner.execute("select dp.set_root_cap('plain', 5)")
    owner.execute("select dp.revoke_budget('alice')")
    assert database.sql("select version from dp.catalog_version") == before


def test_a_role_made_again_under_its_name_keeps_its_losses(owner: Any, database: Any) -> None:
    database.sql("create role passing_by")
    owner.execute("select dp.grant_budget('passing_by', 1)")
    database.sql("drop role passing_by")
    database.sql("create role passing_by")
    owner.execute("select dp.grant_budget('passing_by', 1)")
    assert database.sql("select count(*) from dp.principal") == [(1,)]
    database.sql("drop role passing_by")
