"""The report in a browser: `make report-suite`, half a minute; pictures are left in .dpsql/report.

The file's name keeps it out of `make test`, which must not install a browser.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

from dpsql.client.layout import Layout, server_user
from dpsql.client.report_data import collect
from dpsql.client.report_page import page
from dpsql.client.session import session
from tests.conftest import Server, start_server
from tests.server import test_report

pytestmark = pytest.mark.server

CHROMIUM = ["chromium", "--headless", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]
DARK = "--blink-settings=preferredColorScheme=0"


@pytest.fixture(scope="module")
def written(installation: None) -> Iterator[Path]:
    """Write the page of a database with some life, and one that a test may put scripts into."""
    folder = Layout.discover().home / "report"
    folder.mkdir(exist_ok=True)
    server = start_server()
    try:
        (folder / "report.html").write_text(_page(server))
        yield folder
    finally:
        server.remove()


def _page(server: Server) -> str:
    database = server.create_database()
    database.sql(f"create role {test_report.QUOTED}")
    database.sql(test_report.SETUP)
    database.sql(test_report.OWNER, user="owner1")
    test_report.ask(database)
    try:
        with session(database.conninfo("owner1"), as_json=False) as connection:
            return page(collect(connection))
    finally:
        database.close()


def browse(file: Path, *words: str) -> str:
    """Run the browser on a file; its sandbox needs what a container may lack."""
    sandbox = ["--no-sandbox"] if server_user() else []
    done = subprocess.run(
        [*CHROMIUM, *sandbox, "--enable-logging=stderr", *words, file.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert console == []
    return done.stdout


def picture(
    folder: Path, name: str, *words: str, size: str = "1200,1600", page: str = "report"
) -> Any:
    from matplotlib.image import imread

    target = folder / f"{name}.png"
    target.unlink(missing_ok=True)
    browse(folder / f"{page}.html", f"--screenshot={target}", f"--window-size={size}", *words)
    return imread(target)[..., :3]


def tried(folder: Path, script: str, *words: str) -> str:
    """Return the page after a script that its policy would not let run."""
    text = (folder / "report.html").read_text()
    text = re.sub(r"<meta http-equiv=[^>]*>", "", text)
    copy = folder / "tried.html"
    copy.write_text(text.replace("</body>", f"<script>{script}</script></body>"))
    return browse(copy, "--dump-dom", *words)


def test_the_script_runs_under_the_policy_of_the_page(written: Path) -> None:
    shown = browse(written / "report.html", "--dump-dom")
    entries = re.findall(r"<li [^>]*data-part[^>]*>", shown)
    assert len(entries) >= 5
    assert all('aria-pressed="true"' in entry for entry in entries)
    # what is named <script> is no script
    assert shown.count("<script") == 2


def test_a_legend_switches_its_line_and_the_limit(written: Path) -> None:
    click = """
        const entry = document.querySelector('[data-part=spent_role-0]');
        entry.click();
        const hidden = (id) => document.getElementById(id).style.display === 'none';
        document.title = [hidden('spent_role-0'), hidden('spent_role-0-limit'), hidden('spent_role-1')].join();
    """
    assert "<title>true,true,false</title>" in tried(written, click)
    twice = click.replace("entry.click();", "entry.click(); entry.click();")
    assert "<title>false,false,false</title>" in tried(written, twice)


def test_light_and_dark(written: Path) -> None:
    light = picture(written, "light")
    dark = picture(written, "dark", DARK)
    assert light.mean() > 0.8
    assert dark.mean() < 0.3
    for drawn in (light, dark):
        # text, axes and lines stand out from the paper
        assert numpy.abs(drawn - drawn[0, 0]).max(axis=2).std() > 0.05
        # the first two series, in their colours
        for colour in ((0x44, 0x77, 0xAA), (0xEE, 0x66, 0x77)):
            near = numpy.abs(drawn * 255 - numpy.array(colour)).max(axis=2) < 8
            assert near.sum() > 200


def test_without_scripts_it_looks_the_same(written: Path) -> None:
    text = (written / "report.html").read_text()
    bare = re.sub(r"<script.*?</script>", "", text, flags=re.S)
    assert "data-part" in bare
    (written / "bare.html").write_text(bare)
    assert numpy.array_equal(picture(written, "light"), picture(written, "bare", page="bare"))


def test_a_phone_scrolls_tables_and_not_the_page(written: Path) -> None:
    picture(written, "phone", size="500,2400")
    measure = "document.title = document.documentElement.scrollWidth <= window.innerWidth"
    assert "<title>true</title>" in tried(written, measure, "--window-size=500,900")


def test_it_prints(written: Path) -> None:
    target = written / "report.pdf"
    target.unlink(missing_ok=True)
    browse(written / "report.html", f"--print-to-pdf={target}", "--no-pdf-header-footer")
    printed = target.read_bytes()
    assert printed.startswith(b"%PDF-")
    pages = max(int(n) for n in re.findall(rb"/Count (\d+)", printed))
    assert 2 <= pages <= 8
