"""ALTER EXTENSION dpsql UPDATE: an old database, half spent, becomes what an installation makes today.

The old version is a frozen one (tests/update), with its own library and package, so that what the
update finds is what that version really left behind.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest

from dpsql import __version__
from dpsql.client.layout import Layout, run
from tests.conftest import Database
from tests.server.conftest import declare
from tests.server.inventory import differences, inventory, inventory_in
from tests.server.updating import FROZEN, OldServer

OLD = "0.0.1"
# A version is frozen once: what people have installed does not change any more.
SHA256 = {OLD: "622e47ac655ab413446d0cc8ff4a421846aaf8224666a7d520f68d43bc3b2162"}

MORE = """
create table public.guest (g_id int primary key, g_kind text not null);
create table public.visit (v_id int primary key, v_guest int not null references public.guest, v_paid text);
insert into public.guest select i, case when i % 4 = 0 then 'club' else 'single' end from generate_series(1, 400) i;
insert into public.visit select i, 1 + i % 400, 'card' from generate_series(1, 900) i;
create table public.remark (r_id int primary key, r_guest int not null);
insert into public.remark select i, i from generate_series(1, 300) i;
alter table public.guest owner to owner1;
alter table public.remark owner to owner1;
alter table public.visit owner to owner1;
create view public.asked as select dp_count(*) as n from public.client where c_id > 7;
create view public.left_over as select role, epsilon_remaining from dp.budgets;
grant select on public.asked, public.left_over to alice;
create role aide; grant execute on function dp.zcdp_rho(numeric, numeric) to aide;
create schema copy authorization alice;
"""
OWNER = """
select dp.protect('guest', privacy_unit => 'g_id', epsilon => 40, delta => 1e-5);
select dp.link('remark', 'guest', array['r_guest'], nulls => 'excluded');
select dp.set_domain('guest', 'g_kind', array['club', 'single']);
select dp.set_domain('visit', 'v_paid', array['card', 'cash'], other => 'other');
select dp.set_root_cap('client', 60, 1e-6, composition => 'zcdp');
select dp.grant_budget('alice', 20, 1e-5);
select dp.grant_budget('bob', 4, 1e-6, budget_window => '1 month');
select dp.record_loss('bob', 'client', 1, 0, 'on paper');
select dp.collect_statistics('client'), dp.collect_statistics('purchase'); select dp.refresh_statistics('purchase');
select dp.set_answer_lifetime('purchase', '100 days');
"""
PAID = "select dp_count(*) from client where c_id > 20"
UNITS = (
    "select g_kind, dp_count(*) from guest join visit on v_guest = g_id group by g_kind order by 1"
)
RELEASED = "select g_kind, dp_count(*) from guest group by g_kind"
SKETCHED = "select dp_count(*) from purchase a join purchase b on a.p_client = b.p_client"
NEW = "select dp_count(*) from client where c_id > 150"
COPY = """call dp.synthesize('copy', array['guest', 'visit']::regclass[], epsilon => 2, delta => 1e-7,
  d_max => '{"visit": 4}', placeholders => true)"""

# What no update may change, and nothing may be missing from, but for columns that say nothing yet or any more.
NEW_COLUMNS = (
    "array['failure_limit', 'failure_limit_in_all', 'failure', 'request', 'earlier_names']"
)
KEPT = {
    source: f"select to_jsonb(t) - {NEW_COLUMNS} from {source} as t order by 1"
    for source in (
        *("dp.budgets", "dp.relations", "dp.domains", "dp.ledger", "dp.spend", "dp.answer"),
        *("dp.answer_text", "dp.role_total", "dp.root_total", "dp.loss", "dp.root", "dp.policy"),
        *("dp.unit_link", "dp.stored_release", "dp.synthesis", "dp.statistic"),
        *("dp.change", "dp.sketch_counter", "dp.ledger_identity", "dp.ledger_incarnation"),
        *("dpv.kinds", "copy.guest", "copy.visit"),
        "(select name, relation, synthetic from dp.shown_relation)",
    )
}


@dataclass
class Life:
    """A database before its update, while the server is newer than it, and afterwards."""

    server: OldServer
    shop: Database
    before: dict[str, Any] = field(default_factory=dict)
    answers: dict[str, Any] = field(default_factory=dict)
    refused: dict[str, Any] = field(default_factory=dict)
    session: Any = None
    too_early: Any = None

    def kept(self) -> dict[str, Any]:
        return {name: self.shop.sql(query) for name, query in KEPT.items()}


def ask(database: Database, query: str, user: str = "alice") -> Any:
    return database.sql(query, user=user)


def live_under_the_old_version(life: Life) -> None:
    shop = declare(life.shop)
    shop.sql(MORE)
    with shop.connect("owner1") as owner:
        for statement in OWNER.strip().split("\n"):
            owner.execute(statement)
        owner.execute(f"select dp.create_sketch($$ {SKETCHED} $$)")
        owner.execute(
            "insert into purchase select 9000 + i, 1, 1, '2024-01-01', true from generate_series(1, 9) i"
        )
    for query in (PAID, UNITS, "select n from asked"):
        life.answers[query] = ask(shop, query)
    ask(shop, f"select dp.release('kinds', $$ {RELEASED} $$, epsilon => 1, delta => 1e-9)")
    ask(shop, COPY)
    life.before = life.kept()
    assert all(life.before.values()), [name for name, rows in life.before.items() if not rows]


def meet_the_new_library(life: Life) -> None:
    """Try what must be refused while the SQL objects are older than the library."""
    for name, statement in {
        "question": NEW,
        "paid": PAID,
        "view": "select n from asked",
        "text": f"select * from dp.query($$ {NEW} $$)",
        "explain": f"select * from dp.explain($$ {NEW} $$)",
        "release": f"select dp.release('other', $$ {RELEASED} $$, epsilon => 1)",
        "copy": COPY.replace("'copy'", "'second'"),
    }.items():
        with pytest.raises(psycopg.Error) as caught:
            ask(life.shop, statement)
        life.refused[name] = caught.value
    life.session = life.shop.connect("alice")
    with pytest.raises(psycopg.Error):
        life.session.execute(NEW)


def update_without_restart(life: Life) -> Any:
    """Put the present version's files beside the running old server, and update."""
    for path in extension_files(Layout.discover().bin).glob("dpsql*"):
        shutil.copy(path, extension_files(life.server.cluster.bin))
    with pytest.raises(psycopg.Error) as caught:
        life.shop.sql("alter extension dpsql update")
    assert life.kept() == life.before
    return caught.value


def extension_files(programs: Path) -> Path:
    return Path(run([programs / "pg_config", "--sharedir"]).strip()) / "extension"


@pytest.fixture(scope="module")
def life(installation: None) -> Iterator[Life]:
    server = OldServer(OLD)
    try:
        life = Life(server, server.create_database("shop"))
        live_under_the_old_version(life)
        life.too_early = update_without_restart(life)
        server.install_present()
        life.shop = Database(server.cluster, life.shop.name)
        meet_the_new_library(life)
        assert life.kept() == life.before, "what was refused wrote something"
        # public relations, other tables and what is published stay in use meanwhile
        life.shop.sql("insert into purchase values (9100, 1, 1, '2024-01-01', true)", user="owner1")
        life.shop.sql("delete from purchase where p_id = 9100", user="owner1")
        life.before["dp.change"] = life.shop.sql(KEPT["dp.change"])
        assert life.shop.sql("select count(*) from dpv.kinds", user="alice") == [(2,)]
        life.shop.sql("alter extension dpsql update")
        yield life
        life.shop.close()
    finally:
        server.remove()


def test_frozen_versions_are_what_they_were() -> None:
    found = {
        path.name.removesuffix(".tar.xz"): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in FROZEN.glob("*.tar.xz")
    }
    assert found == SHA256


@pytest.mark.parametrize("name", ["question", "paid", "view", "text", "explain", "release", "copy"])
def test_a_library_that_is_newer_than_the_extension_answers_nothing(life: Life, name: str) -> None:
    refused = life.refused[name]
    assert refused.sqlstate == "PD030"
    assert f"version {OLD}" in refused.diag.message_detail
    assert f"version {__version__}" in refused.diag.message_detail
    assert "ALTER EXTENSION dpsql UPDATE" in refused.diag.message_hint


def test_an_updated_extension_is_one_that_was_installed(life: Life) -> None:
    """A table that changed without a step in sql/updates is named here."""
    fresh = life.server.create_database("fresh")
    wanted = inventory(fresh)
    found = inventory(life.shop)
    # what an administrator granted stays; PostgreSQL takes it for part of the extension from now on
    for part in ("function", "first privileges function"):
        name = f"{part} dp.zcdp_rho(numeric,numeric)"
        granted = str(found[name])
        assert granted.count("aide=X/postgres") == 1
        found[name] = granted.replace("aide=X/postgres,", "")
    assert differences(found, wanted) == []
    fresh.close()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("alter table dp.loss add column more text", "column dp.loss.more"),
        ("alter table dp.loss alter note drop not null", "column dp.loss.note"),
        ("alter table dp.loss alter note set default ''", "column dp.loss.note"),
        ("alter table dp.loss add constraint more check (id > 0)", "constraint dp.loss: more"),
        ("create index more on dp.loss (note)", "index dp.more"),
        ("comment on column dp.loss.note is 'x'", "comment column note of table dp.loss"),
        ("alter table dp.loss owner to dp_ledger", "relation dp.loss"),
        ("grant select on dp.loss to public", "relation dp.loss"),
        ("grant select (note) on dp.loss to public", "column dp.loss.note"),
        ("alter function dp.caller() security definer", "function dp.caller()"),
        ("alter function dp.caller() volatile", "function dp.caller()"),
        ("alter function dp.caller() reset search_path", "function dp.caller()"),
        ("alter function dp.caller() owner to dp_executor", "function dp.caller()"),
        ("revoke execute on function dp.caller() from public", "function dp.caller()"),
        ("alter event trigger dpsql_let_new_members_be_read disable", "event trigger dpsql_let_new_members_be_read"),
        ("alter sequence dp.loss_id_seq cycle", "sequence dp.loss_id_seq"),
        ("alter extension dpsql drop view dp.links", "member view dp.links"),
        ("update pg_extension set extcondition[3] = 'where false' where extname = 'dpsql'", "dumped dp.role_budget"),
        ("alter default privileges grant execute on functions to alice", "default privileges (postgres,-,f)"),
        ("grant create on schema dpv to public", "schema dpv"),
    ],
)  # fmt: skip
def test_the_comparison_sees(database: Database, change: str, told: str) -> None:
    with database.connect(autocommit=False) as connection:
        before = inventory_in(connection)
        connection.execute(change)
        lines = differences(inventory_in(connection), before)
        connection.rollback()
    assert [line for line in lines if line.split(": ", 1)[1].split("\n")[0] == told], lines


def test_an_update_changes_no_declaration_budget_spend_answer_or_release(life: Life) -> None:
    found = life.kept()
    assert {name for name in KEPT if found[name] != life.before[name]} == set()


def test_stored_answers_are_still_free_and_new_questions_charged(life: Life) -> None:
    spends = "select count(*) from dp.spend where state = 'answered'"
    (before,) = life.shop.sql(spends)[0]
    for query, answer in life.answers.items():
        assert ask(life.shop, query) == answer
    assert ask(life.shop, RELEASED), "answered from the release"
    assert life.shop.sql(spends) == [(before,)]
    spent = "select epsilon_spent from dp.budgets where account = 'role' and role = 'alice'"
    ((known,),) = life.shop.sql(spent)
    # this session was refused before the update
    life.session.execute(NEW)
    assert life.shop.sql(spent) == [(known + 1,)]
    with pytest.raises(psycopg.Error) as caught:
        ask(life.shop, "set dp.epsilon = 19; select dp_count(*) from client where c_id > 3")
    assert caught.value.sqlstate == "PD001"
    assert life.shop.sql(spent) == [(known + 1,)]


def test_what_is_new_works_on_what_is_old(life: Life) -> None:
    owner = life.shop.connect("owner1")
    assert owner.execute("select status from dp.ledger_status").fetchone() == ("ok",)
    assert owner.execute("select valid from dp.sketches").fetchall() == [(True,)]
    assert owner.execute("select dp.check_lockdown()").fetchall()
    owner.execute("select dp.expose('guest', array['g_kind'], 'guests')")
    assert ask(life.shop, "select count(*) from dpv.guests")
    assert ask(life.shop, "select * from dp.synthesis_report('copy')")
    ask(life.shop, "select dp.refresh_release('kinds')")
    ask(life.shop, "select dp.drop_release('kinds')")
    with pytest.raises(psycopg.Error) as caught:
        owner.execute("select * from dpv.client")
    assert caught.value.sqlstate == "PD010"


def test_no_way_leads_back(life: Life) -> None:
    paths = life.shop.sql(
        "select source, target from pg_extension_update_paths('dpsql') where path is not null"
    )
    assert paths == [(OLD, __version__)]
    with pytest.raises(psycopg.Error) as caught:
        life.shop.sql(f"alter extension dpsql update to '{OLD}'")
    assert "no update path" in str(caught.value)
    assert life.shop.sql("select extversion from pg_extension where extname = 'dpsql'") == [
        (__version__,)
    ]


def test_the_server_must_be_restarted_before_the_update(life: Life) -> None:
    assert life.too_early.sqlstate == "PD030"
    assert "the library dpsql" in life.too_early.diag.message_primary
    assert "Restart the server" in life.too_early.diag.message_hint


def test_an_extension_that_is_newer_than_the_library_answers_nothing(life: Life) -> None:
    """As after an update whose server was not restarted."""
    set_version = "update pg_extension set extversion = '{}' where extname = 'dpsql'"
    life.shop.sql(set_version.format("99.0"))
    try:
        with pytest.raises(psycopg.Error) as caught:
            life.session.execute(NEW)
    finally:
        life.shop.sql(set_version.format(__version__))
    assert caught.value.sqlstate == "PD030"
    assert "restart the server" in caught.value.diag.message_hint
    assert life.session.execute(NEW).fetchone()
