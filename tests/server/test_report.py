"""``dpsql report``: what the page says, to whom, and that names cannot become markup."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import psycopg
import pytest

from dpsql.client.report_data import SECTIONS
from tests.server.commanding import Command, commander

EVIL = "<script>alert(1)</script>"
QUOTED = '"' + EVIL + '"'
#: No time or number of a page has it by chance.
CONSTANT = "471147114711"
RELEASE = "<b>r</b>"
FORMULA = "$\\frac{1}{2}$ & </svg>"
SETUP = f"""
create table public.client (c_id integer primary key, c_kind text, c_note text);
insert into client select i, 'abc' from generate_series(1, 50) as i;
create table public.{QUOTED} (id integer primary key);
alter table client owner to owner1; alter table {QUOTED} owner to owner1;
grant dp_owner to owner1;
"""
OWNER = f"""
select dp.protect('client', epsilon => 90), dp.protect('{QUOTED}'), dp.set_domain('client', 'c_kind', array['abc', 'd']);
select dp.grant_budget('alice', 40, 1e-5), dp.grant_budget('bob', 20, 1e-5, 'zcdp'), dp.grant_budget('{QUOTED}', 1);
"""
VOID = {"meta", "path", "use", "br", "link", "img"}


class Page(HTMLParser):
    """The tree of a page, as far as tests ask: well nested, its tables, texts and what it would load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.sections: dict[str, list[list[str]]] = {}
        self.scripts: list[str] = []
        self.words: list[str] = []
        self._section = ""
        self._cell: list[str] | None = None
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "section":
            self._section = dict(attributes)["id"] or ""
            self.sections[self._section] = []
        if tag == "tr":
            self.sections[self._section].append([])
        if tag in ("td", "th"):
            self._cell = []

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        if tag in ("td", "th") and self._cell is not None:
            self.sections[self._section][-1].append(" ".join("".join(self._cell).split()))
            self._cell = None

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)
        else:
            self.words.append(data)
            if self._cell is not None:
                self._cell.append(data)

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def check(page: Page) -> None:
    """Nothing is loaded, nothing but our script runs, and nothing has a handler of its own."""
    assert len(page.of("script")) == len(page.scripts) == 2
    assert page.of("script")[0]["type"] == "application/json"
    json.loads(page.scripts[0])
    policies = [m["content"] for m in page.of("meta") if m.get("http-equiv")]
    assert policies[0].startswith(
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-"
    )
    for tag, attributes in page.tags:
        assert tag not in (
            "iframe",
            "object",
            "embed",
            "link",
            "img",
            "base",
            "form",
            "foreignobject",
        )
        for name, value in attributes.items():
            assert not name.startswith("on")
            if name in ("src", "href", "xlink:href"):
                assert (value or "").startswith("#")
    ids = [attributes["id"] for _, attributes in page.tags if attributes.get("id")]
    assert len(ids) == len(set(ids))
    for entry in (a["data-part"] for _, a in page.tags if a.get("data-part")):
        assert entry in ids
    for style in re.findall(r"url\(([^)]*)\)", " ".join(str(a) for _, a in page.tags)):
        assert style.startswith("#")


@pytest.fixture
def command(capfd: Any, monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.delenv("DPSQL_DSN", raising=False)
    return commander(capfd, monkeypatch)


@pytest.fixture
def shop(database: Any) -> Iterator[Any]:
    database.sql(f"create role {QUOTED}")
    database.sql(SETUP)
    database.sql(OWNER, user="owner1")
    yield database
    database.sql("revoke dp_owner from owner1")
    database.sql(f"drop role {QUOTED}")


def read(command: Command, folder: Path, database: Any, user: str, *words: str) -> Page:
    file = folder / "page.html"
    done = command("report", "--html", str(file), "--dsn", database.conninfo(user), *words)
    assert (done.code, done.err) == (0, "")
    page = Page(file.read_text())
    check(page)
    return page


def ask(shop: Any) -> None:
    """Some life: answers, refusals, a release, statistics."""
    alice = shop.connect("alice")
    alice.execute("set dp.epsilon = 0.5")
    alice.execute(f"select dp_count(*) from client where c_id > {CONSTANT}")
    alice.execute(f"select dp_count(*) from {QUOTED}")
    alice.execute(
        f"select dp.release('{RELEASE}', $$ select c_kind, dp_count(*) from client group by 1 $$, 2)"
    )
    shop.sql("set dp.epsilon = 0.1; select dp_count(*) from client", user="bob")
    for text in (
        "select dp_count(*) from pg_class",
        "select dp_count(*) from client where c_id = random()",
    ):
        with pytest.raises(psycopg.Error):
            alice.execute(text)
    shop.sql("select dp.collect_statistics('client')", user="owner1")
    shop.sql("select dp.refresh_statistics('client')", user="owner1")
    shop.sql("update dp.spend set at = at - id * interval '1 day'")


@pytest.mark.parametrize(
    "words", [["report", "--json"], ["status"], ["budgets", "list"], ["budgets", "burn"]]
)
def test_functions_of_others_are_not_taken_for_postgresqls(
    shop: Any, command: Command, words: list[str]
) -> None:
    """Better matches than PostgreSQL's own, on the owner's path: they would run in the owner's name."""
    ask(shop)
    shop.sql("grant create, usage on schema public to bob")
    took = "language plpgsql as $$ begin raise exception 'ran as %', current_user; end $$"
    shop.sql(
        f"create function public.format(text, text, text) returns text {took};"
        f"create function public.format(text, name, name) returns text {took};"
        f"create function public.max(text, text) returns text {took};"
        f"create function public.interval_min(timestamptz, timestamptz) returns interval {took};"
        "create operator public.- (leftarg = timestamptz, rightarg = timestamptz, function = public.interval_min);"
        f"create function public.date_bin(interval, timestamptz, timestamptz) returns timestamptz {took};"
        "set search_path = public",
        user="bob",
    )
    shop.sql("alter role owner1 set search_path = public, pg_catalog")
    try:
        done = command(*words, "--dsn", shop.conninfo("owner1"))
    finally:
        shop.sql("alter role owner1 reset search_path")
    assert "ran as" not in done.err + done.out
    assert done.code == 0


def test_an_empty_ledger_makes_a_page(database: Any, command: Command, tmp_path: Path) -> None:
    """With nothing declared, and by a superuser, too."""
    page = read(command, tmp_path, database, "postgres")
    assert set(page.sections) == set(SECTIONS)
    assert page.of("svg") == []
    assert "No role has a budget." in page.text
    database.sql("select dp.grant_budget('alice', 7)")
    page = read(command, tmp_path, database, "alice")
    assert page.sections["budgets"][1][0] == "alice"
    assert "Nothing was spent yet." in page.text
    assert stat.S_IMODE((tmp_path / "page.html").stat().st_mode) == 0o600


def test_names_are_texts_and_numbers_those_of_the_views(
    shop: Any, command: Command, tmp_path: Path
) -> None:
    ask(shop)
    shop.sql(f'alter role bob rename to "{FORMULA}"')
    try:
        page = read(command, tmp_path, shop, "owner1")
    finally:
        shop.sql(f'alter role "{FORMULA}" rename to bob')
    assert len(page.of("svg")) == 4
    accounts = {row[0]: row for row in page.sections["budgets"] if len(row) == 11}
    assert {"alice", EVIL, FORMULA, "public.client", f'public."{EVIL}"'} <= set(accounts)
    assert accounts["alice"][2:5] == ["40", "3", "37"]
    assert accounts["public.client"][2:5] == ["90", "2.6", "87.4"]
    assert accounts[FORMULA][9] == "zcdp"
    steps = [row for row in page.sections["budgets"] if len(row) == 6 and row[1] == "alice"]
    assert [row[5] for row in steps] == ["2", "2.5", "3"]
    (release,) = (row for row in page.sections["releases"] if row[1] == RELEASE)
    expected = shop.sql("select expected_error from dp.releases")[0][0]
    assert release[6] == f"{expected:.4g}"
    refused = {row[0]: row[3:5] for row in page.sections["refusals"][1:]}
    assert refused == {"PD012": ["1", "1"], "PD013": ["1", "1"]}
    assert page.sections["statistics"][1][0] == "public.client"
    assert page.sections["statistics"][1][5] == "yes"
    assert page.sections["lockdown"][1][0] in ("critical", "high")
    readers = {row[0]: row for row in page.sections["roles"] if len(row) == 4}
    assert readers["alice"][3] == RELEASE
    assert readers[EVIL][3] == ""


def test_texts_and_exact_changes_are_asked_for(shop: Any, command: Command, tmp_path: Path) -> None:
    ask(shop)
    shop.sql("insert into client select i from generate_series(1001, 1777) as i")
    page = read(command, tmp_path, shop, "owner1")
    text = page.text + page.scripts[0]
    assert CONSTANT not in text
    assert "rows changed" not in text
    assert all("changes" not in row for row in json.loads(page.scripts[0])["statistics"])
    assert all(len(row) == 6 for row in page.sections["statistics"])
    page = read(command, tmp_path, shop, "owner1", "--with", "questions", "--with", "changes")
    assert CONSTANT in page.text
    assert page.sections["statistics"][1][6] == "777"
    page = read(
        command, tmp_path, shop, "owner1", "--without", "statistics", "--without", "lockdown"
    )
    assert set(page.sections) == set(SECTIONS) - {"statistics", "lockdown"}
    nothing = [word for name in SECTIONS for word in ("--without", name)]
    assert read(command, tmp_path, shop, "owner1", *nothing).sections == {}


def test_an_analyst_sees_its_own(shop: Any, command: Command, tmp_path: Path) -> None:
    ask(shop)
    page = read(command, tmp_path, shop, "bob", "--with", "questions", "--with", "changes")
    assert set(page.sections) == set(SECTIONS) - {"statistics", "lockdown"}
    assert [row[0] for row in page.sections["budgets"] if len(row) == 11] == ["role", "bob"]
    text = (tmp_path / "page.html").read_text()
    assert "alice" not in text
    assert CONSTANT not in text
    assert page.sections["refusals"] == []
    # who may see nothing is refused by the server
    done = command("report", "--html", str(tmp_path / "no.html"), "--dsn", shop.conninfo("mallory"))
    assert done.code == 1
    assert "permission denied" in done.err
    assert not (tmp_path / "no.html").exists()


def test_the_document_and_its_keys(shop: Any, command: Command, tmp_path: Path) -> None:
    ask(shop)
    # whatever the zone of the session is
    dsn = shop.conninfo("owner1", options="-c timezone=America/New_York")
    done = command("report", "--json", "--dsn", dsn)
    assert done.document["about"]["made_at"].endswith("+00:00")
    assert set(done.document) == {"about", "questions", *SECTIONS}
    assert done.document["questions"] is None
    missing = str(tmp_path / "none" / "page.html")
    done = command("report", "--html", missing, "--dsn", shop.conninfo("owner1"))
    assert done.code == 1
    assert f"cannot write {missing}" in done.err


def test_a_hundred_thousand_spends_and_many_roles(
    shop: Any, command: Command, tmp_path: Path
) -> None:
    ask(shop)
    shop.sql(
        """
        insert into dp.principal (role_name) select 'gone' || i from generate_series(1, 300) as i;
        insert into dp.spend (at, principal, role_name, epsilon, delta, rho, rho_delta, mechanism, method, label,
                              question, key, roots, source, state)
        select now() - (i % 700) * interval '1 day', p.id, p.role_name, 0.01, 0, 0.00005, 0,
               'laplace', 'residual', 'proved', repeat('q', 100), '', array[1], 1, 'answered'
          from generate_series(1, 100000) as i
          join dp.principal as p on p.id = (select min(id) from dp.principal) + i % (select count(*) from dp.principal)
    """
    )
    page = read(command, tmp_path, shop, "owner1")
    assert (tmp_path / "page.html").stat().st_size < 2_000_000
    assert "in all; the first 200 are shown." in page.text
    assert ["residual", "laplace", "proved"] in [row[:3] for row in page.sections["costs"]]
    assert "more, in the table" in page.text
    assert "public.client" in {row[0] for row in page.sections["budgets"] if len(row) == 11}
    assert len([row for row in page.sections["budgets"] if len(row) == 6]) == 501
