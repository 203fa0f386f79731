"""Joins that are too large are refused at no cost; those that are not can be cancelled."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import psycopg
import pytest

from dpsql.query.flatten import MAX_OCCURRENCES
from dpsql.query.pipeline import MAX_PRIVATE_OCCURRENCES

pytestmark = pytest.mark.server


def cross(relation: str, count: int) -> str:
    return ", ".join(f"{relation} {relation[0]}{i}" for i in range(count))


def ask(sources: str) -> str:
    return f"select dp_count(*) from {sources}"


@pytest.mark.parametrize("count", [MAX_PRIVATE_OCCURRENCES + 1, MAX_OCCURRENCES])
@pytest.mark.parametrize("form", ["{}", "select * from dp.explain($${}$$)"])
def test_too_many_protected_relations_are_refused_at_once(shop: Any, count: int, form: str) -> None:
    with shop.connect(user="alice") as alice, pytest.raises(psycopg.Error) as caught:
        alice.execute(form.format(ask(cross("purchase", count))))
    diag = caught.value.diag
    assert diag.sqlstate == "PD011"
    assert f"more than {MAX_PRIVATE_OCCURRENCES} mentions" in str(diag.message_primary)
    assert f"joins {count} " in str(diag.message_detail)
    assert diag.message_hint
    assert shop.sql("select count(*) from dp.spend") == [(0,)]


@pytest.mark.parametrize("count", [MAX_OCCURRENCES + 1, 60])
@pytest.mark.parametrize(
    "form", ["{}", "select * from dp.explain($${}$$)", "select dp.sensitivity($${}$$)"]
)
def test_too_many_relations_are_refused_at_once(shop: Any, count: int, form: str) -> None:
    user = "owner1" if "sensitivity" in form else "alice"
    with shop.connect(user=user) as connection, pytest.raises(psycopg.Error) as caught:
        connection.execute(form.format(ask(cross("region", count))))
    diag = caught.value.diag
    assert diag.sqlstate == "PD011"
    assert f"more than {MAX_OCCURRENCES} relations" in str(diag.message_primary)
    assert diag.message_hint
    assert shop.sql("select count(*) from dp.spend") == [(0,)]


def test_the_owner_s_view_of_the_sensitivity_has_the_limit_too(shop: Any) -> None:
    text = ask(cross("purchase", MAX_PRIVATE_OCCURRENCES + 1))
    with shop.connect(user="owner1") as owner, pytest.raises(psycopg.Error) as caught:
        owner.execute(f"select dp.sensitivity($${text}$$)")
    assert caught.value.sqlstate == "PD011"


def test_relations_that_foreign_keys_remove_do_not_count(shop: Any) -> None:
    joined = "purchase join client on c_id = p_client"
    more = cross("client", MAX_PRIVATE_OCCURRENCES - 1)
    rows = shop.sql(f"select * from dp.explain($${ask(f'{joined}, {more}')}$$)", user="alice")
    assert any(item == "redundant joins" for item, _ in rows)


def test_the_largest_cross_join_is_answered(shop: Any) -> None:
    with shop.connect(user="alice") as alice:
        alice.execute("set statement_timeout = '300s'")
        sources = f"{cross('client', MAX_PRIVATE_OCCURRENCES)} where false"
        assert alice.execute(ask(sources)).fetchone() is not None


def test_statement_timeout_stops_the_largest_plan(shop: Any) -> None:
    """A star of protected relations with public ones around, with the costlier method.

    Its plan takes 0.3 s on a machine where nothing else runs.
    """
    public = [f"region r{i}" for i in range(MAX_OCCURRENCES - MAX_PRIVATE_OCCURRENCES)]
    private = [f"client c{i}" for i in range(MAX_PRIVATE_OCCURRENCES)]
    names = [name.split()[1] for name in private]
    joins = [f"{a}.c_region = {b}.c_region" for a, b in pairwise(names)]
    joins += [f"r{i}.r_id = c0.c_region" for i in range(len(public))]
    text = f"{ask(', '.join([*private, *public]))} where {' and '.join(joins)}"
    with shop.connect(user="alice") as alice:
        alice.execute("select dp_count(*) from region")  # modules are loaded
        alice.execute("set dp.method = 'residual'")
        alice.execute("set statement_timeout = '50ms'")
        with pytest.raises(psycopg.Error) as caught:
            alice.execute(text)
    assert caught.value.sqlstate == "57014"
