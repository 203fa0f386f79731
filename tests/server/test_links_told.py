"""What dp.link and dp.unlink refuse and tell: types, circles, several units, no unit at all."""

from __future__ import annotations

from typing import Any, NamedTuple

import psycopg
import pytest

from tests.server.asking import refused

pytestmark = pytest.mark.server

SET_UP = """
create table customer (id int primary key, code text not null unique, price numeric not null unique);
create table orders (id int primary key, customer int not null references customer);
create table ticket (customer int not null references customer, "order" int references orders);
insert into customer select g, g, g from generate_series(1, 300) g;
insert into orders select g, g from generate_series(1, 300) g;
insert into ticket select g, case when g <= 100 then g end from generate_series(1, 300) g;
select dp.protect('customer', privacy_unit => 'id');
select dp.grant_budget('postgres', 1e5, 1)
"""
FOLLOW = "SELECT dp.link('public.ticket', 'public.orders', array['order'], follow => false);"
EXCLUDE = "SELECT dp.link('public.ticket', 'public.orders', array['order'], nulls => 'excluded');"


@pytest.fixture
def shop(database: Any) -> Any:
    database.sql(SET_UP)
    return database


def problem(database: Any, relation: str) -> str | None:
    query = f"select problem from dp.relations where relation_name = '{relation}'"
    return str(found) if (found := database.sql(query)[0][0]) else None


class Told(NamedTuple):
    message: str
    detail: str
    hint: str


def warnings(database: Any, statement: str) -> list[Told]:
    found: list[Told] = []

    def keep(told: psycopg.errors.Diagnostic) -> None:
        if told.severity == "WARNING":
            texts = (told.message_primary, told.message_detail, told.message_hint)
            found.append(Told(*(text or "" for text in texts)))

    with database.connect() as session:
        session.add_notice_handler(keep)
        session.execute(statement)
    return found


def warned(database: Any, statement: str) -> list[str]:
    return [told.message for told in warnings(database, statement)]


def test_another_way_that_is_never_null_is_what_to_keep(shop: Any) -> None:
    told = str(problem(shop, "ticket"))
    assert 0 < told.index(FOLLOW) < told.index(EXCLUDE)
    assert "every row still belongs to its unit by another way" in told
    assert f"and to none by this one) or {EXCLUDE}" in told
    assert "rows where order leads to no parent are never counted" in told
    shop.sql(FOLLOW)
    assert problem(shop, "ticket") is None
    # noise other than 0 has a probability of 2 exp(-50): no bound is drawn
    asked = "set dp.epsilon = 50; set dp.max_rows_contributed = 1; select dp_count(*) from ticket"
    assert shop.sql(asked) == [(300,)]


def test_without_another_way_nothing_says_not_to_follow(shop: Any) -> None:
    shop.sql("alter table ticket drop customer")
    told = str(problem(shop, "ticket"))
    assert EXCLUDE in told
    assert "follow => false" not in told
    # nor where the other way may be NULL itself
    shop.sql("alter table ticket add customer int references customer")
    assert "follow => false" not in str(problem(shop, "ticket"))


def test_several_units_are_told_of_by_link_and_unlink(shop: Any) -> None:
    several = ["rows of public.ticket belong to several privacy units"]
    assert warned(shop, FOLLOW.lower()) == []
    unlink = "select dp.unlink('ticket', 'orders', array['order'])"
    assert warned(shop, unlink) == several
    assert warned(shop, EXCLUDE.lower()) == several
    assert warned(shop, EXCLUDE.lower()) == []


@pytest.mark.parametrize("excluded", [False, True])
def test_a_foreign_key_between_types_that_are_not_compared_is_told_of(
    shop: Any, excluded: bool
) -> None:
    """The analyser would refuse such a way also where rows without a unit are left out."""
    shop.sql(
        "create table day (d timestamp primary key, customer int not null references customer);"
        "create table shift (d timestamp not null references day);"
        "insert into day select '2020-01-01', 1; insert into shift select d from day"
    )
    assert problem(shop, "shift") is None
    if excluded:
        shop.sql("select dp.link('shift', 'day', array['d'], nulls => 'excluded')")
    shop.sql("alter table shift alter d type date")
    told = str(problem(shop, "shift"))
    assert "public.shift.d is of type date, public.day.d of type timestamp" in told
    assert "excluded" not in told
    assert "follow" not in told
    mend = told[told.index("ALTER TABLE") :]
    with shop.connect() as owner:
        assert refused(owner, "select dp_count(*) from shift").sqlstate in ("PD011", "PD012")
        # with another way for every row the key need not be followed
        owner.execute("alter table shift add customer int not null references customer default 1")
        other = str(problem(shop, "shift"))
        assert 0 < other.index("follow => false);") < other.index(mend)
        assert "excluded" not in other
        assert "never counted" not in other
        owner.execute("alter table shift drop customer")
        owner.execute(mend)
        assert problem(shop, "shift") is None
        owner.execute("select dp_count(*) from shift")


def test_a_foreign_key_between_types_that_are_compared_excludes_rows(shop: Any) -> None:
    shop.sql("create table paid (price int not null references customer (price))")
    told = str(problem(shop, "paid"))
    assert "types of price and price differ" in told
    assert "ALTER" not in told
    shop.sql(told[told.index("SELECT") :])
    assert problem(shop, "paid") is None
    shop.sql("select dp_count(*) from paid")


@pytest.mark.parametrize(
    ("mine", "theirs", "fits"),
    [
        ("text", "id", False),
        ("int", "code", False),
        ("date", "id", False),
        ("numeric", "code", False),
        ("bigint", "id", True),
        ("numeric", "id", True),
        ("smallint", "price", True),
        ("varchar(9)", "code", True),
        ("text", "code", True),
    ],
)
def test_columns_are_linked_where_questions_can_compare_them(
    shop: Any, mine: str, theirs: str, fits: bool
) -> None:
    shop.sql(f"create table mail (c {mine})")
    link = f"select dp.link('mail', 'customer', array['c'], array['{theirs}'], nulls => 'excluded')"
    if fits:
        shop.sql(link)
        assert problem(shop, "mail") is None
        shop.sql("select dp_count(*) from mail")
        return
    with shop.connect() as owner:
        error = refused(owner, link)
    assert error.sqlstate == "PD040"
    assert "columns of different types" in str(error)
    assert f"public.mail.c is of type {mine.replace('int', 'integer')}" in str(
        error.diag.message_detail
    )
    assert "ALTER TABLE public.mail ALTER c TYPE" in str(error.diag.message_hint)
    # what leads to no unit is never compared
    shop.sql(link.replace("nulls => 'excluded'", "follow => false"))


SIDE = """
create table nation (id int primary key, name text);
insert into nation select g, g from generate_series(1, 300) g;
"""


@pytest.mark.parametrize(
    ("before", "detail", "rows_too"),
    [
        ("", "Relation public.tt is not declared: questions about it are refused.", True),
        ("select dp.protect('tt')", "Rows of public.tt are protected one by one.", False),
        (
            "select dp.declare_public('tt')",
            "Rows of public.tt are public and told exactly.",
            False,
        ),
        (
            "select dp.link('tt', 'customer', array['customer'])",
            "Rows of public.tt belong to privacy units by other ways.",
            False,
        ),
        (
            "select dp.protect('tt', privacy_unit => 'customer')",
            "Rows of public.tt have privacy units of their own.",
            False,
        ),
    ],
)
@pytest.mark.parametrize("public", [False, True])
def test_a_link_that_leads_to_no_unit_is_warned_of(
    shop: Any, before: str, detail: str, rows_too: bool, public: bool
) -> None:
    shop.sql(SIDE + "create table tt (n int not null, customer int not null);" + before)
    if public:
        shop.sql("select dp.declare_public('nation')")
    (told,) = warnings(shop, "select dp.link('tt', 'nation', array['n'])")
    assert told.message == (
        "relation public.nation belongs to no privacy unit, so that the link protects no row of"
        " public.tt"
    )
    assert told.detail == detail
    hint = told.hint
    assert "SELECT dp.protect('public.nation', privacy_unit => column);" in hint
    assert ("SELECT dp.protect('public.tt');" in hint) == rows_too
    # the statement that is named takes it back
    back = "SELECT dp.unlink('public.tt', 'public.nation', array['n']);"
    assert back in hint
    shop.sql(back)
    assert warned(shop, "select dp.link('tt', 'nation', array['n'], follow => false)") == []


def test_a_link_before_its_unit_leads_to_it_once_that_is_protected(shop: Any) -> None:
    shop.sql(SIDE + "create table tt (n int not null)")
    assert len(warned(shop, "select dp.link('tt', 'nation', array['n'], nulls => 'excluded')")) == 1
    shop.sql("select dp.protect('nation', privacy_unit => 'id')")
    assert problem(shop, "tt") is None
    assert warned(shop, "select dp.link('tt', 'nation', array['n'], nulls => 'excluded')") == []


def test_an_undeclared_relation_may_be_one_to_link(shop: Any) -> None:
    shop.sql("create table tt (n int)")
    with shop.connect() as owner:
        error = refused(owner, "select dp_count(*) from tt join customer on n = id")
    assert error.sqlstate == "PD012"
    assert "dp.link('public.tt', parent, columns)" in str(error.diag.message_hint)


CIRCLE = (
    SIDE
    + "alter table nation add head int not null default 1;"
    + "alter table customer add nation int not null default 1 references nation;"
)


@pytest.mark.parametrize("public", [False, True])
def test_a_link_that_would_close_a_circle_is_refused(shop: Any, public: bool) -> None:
    shop.sql(CIRCLE)
    if public:
        shop.sql("select dp.declare_public('nation')")
    link = "select dp.link('nation', 'customer', array['head'], nulls => 'excluded')"
    with shop.connect() as owner:
        error = refused(owner, link)
    assert error.sqlstate == "PD040"
    assert "public.nation cannot be linked to public.customer: keys would" in str(error)
    assert problem(shop, "orders") is None
    hint = str(error.diag.message_hint)
    cut = "SELECT dp.link('public.customer', 'public.nation', array['nation'], follow => false);"
    assert cut in hint
    shop.sql(hint[hint.index("SELECT") :])
    if public:
        with shop.connect() as owner:
            error = refused(owner, link)
        assert "public.nation (public)" in str(error.diag.message_detail)
        assert "dp.undeclare_public" in str(error.diag.message_hint)
        shop.sql("select dp.undeclare_public('nation')")
    shop.sql(link)
    assert (problem(shop, "nation"), problem(shop, "orders")) == (None, None)


def test_a_longer_circle_is_cut_by_any_statement_that_is_named(shop: Any) -> None:
    shop.sql(CIRCLE)
    link = "select dp.link('nation', 'orders', array['head'], nulls => 'excluded')"
    with shop.connect() as owner:
        hint = str(refused(owner, link).diag.message_hint)
    first, second = (part.strip(" ;") for part in hint[hint.index("SELECT") :].split(" or "))
    assert first.startswith("SELECT dp.link('public.orders', 'public.customer', array['customer']")
    assert second.startswith("SELECT dp.link('public.customer', 'public.nation', array['nation']")
    shop.sql(second)
    shop.sql(link)
    assert problem(shop, "nation") is None


def test_a_link_within_one_relation_is_refused(shop: Any) -> None:
    shop.sql("alter table customer add guide int")
    with shop.connect() as owner:
        error = refused(owner, "select dp.link('customer', 'customer', array['guide'])")
    assert "cannot be linked to itself" in str(error)
    shop.sql("select dp.link('customer', 'customer', array['guide'], follow => false)")
    shop.sql("select dp.unlink('customer', 'customer', array['guide'])")
    # what a foreign key says already may be linked: it makes nothing worse
    shop.sql("alter table customer add foreign key (guide) references customer")
    shop.sql("select dp.link('customer', 'customer', array['guide'], nulls => 'excluded')")


@pytest.mark.parametrize("key", ["name", "id"])
def test_a_circle_of_foreign_keys_names_each(shop: Any, key: str) -> None:
    shop.sql(CIRCLE + "alter table customer drop nation; alter table nation add unique (name);")
    type_ = {"name": "text", "id": "int"}[key]
    shop.sql(f"alter table customer add nation {type_} references nation ({key})")
    shop.sql("alter table nation add foreign key (head) references customer")
    told = str(problem(shop, "orders"))
    assert told.startswith("its keys lead in a circle, by public.customer; ")
    assert "(child, parent" not in told
    by = ", array['name']" if key == "name" else ""
    cuts = told[told.index("SELECT") :].split(" or ")
    assert cuts == [
        f"SELECT dp.link('public.customer', 'public.nation', array['nation']{by}, follow => false)",
        "SELECT dp.link('public.nation', 'public.customer', array['head'], follow => false)",
    ]
    for cut in cuts:
        shop.sql(cut)
        assert problem(shop, "orders") is None
        shop.sql("delete from dp.unit_link; select dp.touch_catalogue()")


@pytest.mark.parametrize(
    ("declare", "kind", "back"),
    [
        ("declare_public", "public", "undeclare_public"),
        ("protect", "protected row by row", "unprotect"),
    ],
)
def test_a_declaration_that_units_contradict_names_both_ways_out(
    shop: Any, declare: str, kind: str, back: str
) -> None:
    shop.sql(SIDE + f"alter table nation add head int; select dp.{declare}('nation')")
    link = "select dp.link('nation', 'customer', array['head'], nulls => 'excluded')"
    with shop.connect() as owner:
        error = refused(owner, link)
    assert "declared otherwise" in str(error)
    assert f"public.nation ({kind})" in str(error.diag.message_detail)
    # a foreign key that comes later asks nobody
    shop.sql("alter table nation add foreign key (head) references customer")
    told = str(problem(shop, "nation"))
    assert told.startswith(f"it is declared as {kind}, but its rows belong to units of customer.id")
    first, second = told[told.index("SELECT") :].split(", or, if its keys lead to none: ")
    assert first == f"SELECT dp.{back}('public.nation')"
    shop.sql(second)
    assert problem(shop, "nation") is None
    shop.sql(f"delete from dp.unit_link; {first}")
    assert "declared" not in str(problem(shop, "nation"))


def test_what_was_declared_otherwise_before_can_be_linked_better(shop: Any) -> None:
    """A link that changes nothing about whose rows they are is not refused for what is wrong."""
    shop.sql(SIDE + "alter table nation add head int; select dp.declare_public('nation')")
    shop.sql("alter table nation add foreign key (head) references customer")
    shop.sql("select dp.link('nation', 'customer', array['head'], nulls => 'excluded')")


def test_units_are_equated_only_where_they_are_of_one_relation(shop: Any) -> None:
    shop.sql(
        "create table seller (id int primary key); select dp.protect('seller', privacy_unit => 'id');"
        "create table deal (c int not null references customer, s int not null references seller);"
        "create table pair (a int not null references customer, b int not null references customer)"
    )
    with shop.connect() as asker:
        for aggregate, group in (("count(*)", "group by c"), ("count(distinct c)", "")):
            error = refused(asker, f"select dp_{aggregate} from deal {group}")
            assert "equate" not in str(error.diag.message_hint), error.diag.message_hint
        for aggregate, group in (("count(*)", "group by a"), ("count(distinct a)", "")):
            error = refused(asker, f"select dp_{aggregate} from pair {group}")
            assert "; or equate the units" in str(error.diag.message_hint)
    for name, possible in (("deal", False), ("pair", True)):
        shop.sql(f"create table log_{name} (k int); alter table {name} add k int unique")
        link = (
            f"select dp.link('log_{name}', '{name}', array['k'], array['k'], nulls => 'excluded')"
        )
        (told,) = warnings(shop, link)
        assert ("equates the units" in told.detail) == possible
