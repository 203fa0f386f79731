"""What owners are told of budgets, domains and links, and the order in which views list things."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.server.asking import refused

pytestmark = pytest.mark.server

SET_UP = """
create table visit (kind text, place int not null, "When" date);
create table another (a int);
select dp.protect('visit', epsilon => 10), dp.protect('another', epsilon => 10, delta => 1e-3)
"""


@pytest.fixture
def shop(database: Any) -> Any:
    database.sql(SET_UP)
    return database


def told(database: Any, statement: str) -> list[tuple[str, str, str, str]]:
    found: list[tuple[str, str, str, str]] = []

    def keep(d: psycopg.errors.Diagnostic) -> None:
        texts = (d.severity, d.message_primary, d.message_detail, d.message_hint)
        found.append(tuple(text or "" for text in texts))  # type: ignore[arg-type]

    with database.connect() as session:
        session.add_notice_handler(keep)
        session.execute(statement)
    return found


@pytest.mark.parametrize(
    ("epsilon", "delta", "absurd"),
    [
        ("10", "1e-6", False),
        ("1000", "0.01", False),
        ("1e9", "1e-6", True),
        ("10", "1", True),
        ("10", "0.02", True),
    ],
)
def test_a_budget_that_protects_nobody_is_warned_of(
    shop: Any, epsilon: str, delta: str, absurd: bool
) -> None:
    found = told(shop, f"select dp.grant_budget('alice', {epsilon}, {delta})")
    warnings = [message for severity, message, _, _ in found if severity == "WARNING"]
    assert len(warnings) == absurd
    assert all("protects nobody" in message for message in warnings)


def test_a_window_that_uses_up_the_caps_on_delta_is_warned_of(shop: Any) -> None:
    grant = "select dp.grant_budget('alice', 1, {}, budget_window => {})"
    ((_severity, message, detail, hint),) = [
        one for one in told(shop, grant.format("1e-6", "'1 month'")) if one[0] == "WARNING"
    ]
    assert "delta = 0.000001" in message
    assert detail == "Relations whose cap on delta is not larger: public.visit."
    assert "dp.set_root_cap" in hint
    for delta, window in (("1e-7", "'1 month'"), ("0", "'1 month'"), ("1e-6", "null")):
        found = told(shop, grant.format(delta, window))
        assert not [one for one in found if one[0] == "WARNING"], (delta, window)


def test_each_window_has_a_tenth_of_the_caps_on_delta_by_default(shop: Any) -> None:
    windows = ", budget_window => '1 month'"
    for more, delta in (
        (windows, "0.0000001"),
        ("", "0.000001"),
        (", null" + windows, "0.0000001"),
    ):
        found = told(shop, f"select dp.grant_budget('alice', 1{more})")
        assert not [one for one in found if "delta" in one[1]], more
        ((now,),) = shop.sql("select delta_limit::text from dp.budgets where account = 'role'")
        assert now == delta


def test_rows_that_a_domain_leaves_out_are_told_of(shop: Any) -> None:
    ((_, message, _, hint),) = told(shop, "select dp.set_domain('visit', 'kind', array['a'])")
    assert message == "rows where public.visit.kind is NULL are in no group"
    assert "includes_null => true" in hint
    for call, replaced in (
        ("'visit', 'kind', array['a'], includes_null => true", "kind"),
        ("'visit', 'kind', array['a'], includes_null => true", None),  # nothing changes
        ("'visit', 'place', array[1, 2]", None),
        ("'visit', 'place', 0, 9", "place"),
    ):
        found = [message for _, message, _, _ in told(shop, f"select dp.set_domain({call})")]
        assert found == (
            [f"the domain of public.visit.{replaced} was replaced"] if replaced else []
        )
    dates = "select dp.set_domain('visit', 'When', date '2024-01-01', date '2024-02-01')"
    assert "NULL are in no group" in str(told(shop, dates))


def test_a_domain_that_a_new_name_ends_is_told_of(shop: Any) -> None:
    shop.sql("select dp.set_domain('visit', 'kind', array['a'])")
    assert told(shop, "alter table visit rename place to site") == []
    ((_, message, _, hint),) = told(shop, 'alter table visit rename kind to "Sort"')
    assert message == "the domain of column kind of public.visit is of no column any more"
    assert hint == (
        "Declare it of the new name: SELECT dp.set_domain('public.visit', 'Sort', ...);"
    )


def test_views_list_in_order_and_links_are_seen_by_owners(shop: Any) -> None:
    shop.sql(
        "create table person (id int primary key, boss int references person);"
        "create table mail (p int, q int);"
        "select dp.protect('person', privacy_unit => 'id');"
        "select dp.link('person', 'person', array['boss'], follow => false);"
        "select dp.link('mail', 'person', array['q'], nulls => 'excluded');"
        "select dp.link('mail', 'person', array['p'])"
    )
    shop.sql(
        "select dp.set_domain('visit', 'place', 0, 9); select dp.set_domain('visit', 'kind', array['a']);"
        "select dp.set_domain('another', 'a', 0, 9)"
    )
    names = [name for (name,) in shop.sql("select relation_name from dp.relations")]
    assert names == ["another", "mail", "person", "visit"]
    assert shop.sql("select relation_name, column_name from dp.domains") == [
        ("another", "a"),
        ("visit", "kind"),
        ("visit", "place"),
    ]
    links = "select child, columns::text, parent, parent_columns::text, follow, nulls from dp.links"
    assert shop.sql(links) == [
        ("public.mail", "{p}", "public.person", "{id}", True, "refused"),
        ("public.mail", "{q}", "public.person", "{id}", True, "excluded"),
        ("public.person", "{boss}", "public.person", "{id}", False, "refused"),
    ]
    shop.sql("select dp.grant_budget('alice', 1)")
    with shop.connect("alice") as alice:
        assert refused(alice, links).sqlstate == "42501"
