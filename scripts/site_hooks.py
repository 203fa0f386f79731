"""What the site needs beside Markdown: navigation, formulas, and pages as GitHub reads them."""

from __future__ import annotations

import html
import logging
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert

log = logging.getLogger("mkdocs.hooks.dpsql")

FENCE = re.compile(r"^\s*(```|~~~)")
ITEM = re.compile(r"^\s*([-*]|\d+\.) ")
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((\.\./[^)\s]+)\)")
# A prime is raised by its font, bars are fences: neither as the converter has them.
PRIMED = re.compile(r"<msup>(<mi>[^<]*</mi>)(<m[io]>&#x02032;</m[io]>)</msup>")
BAR = re.compile(r"<mo([^>]*)>(?=&#x0007C;|\|)")
FORMULA = re.compile(r'<(span|div) class="arithmatex">\s*\\[(\[](.*?)\\[)\]]\s*</\1>', re.DOTALL)


def on_config(config: Any) -> Any:
    """Leave out pages that do not exist; name those last that the navigation forgets."""
    folder = Path(config.docs_dir)
    pages = {str(path.relative_to(folder)) for path in folder.rglob("*.md")}
    named: set[str] = set()
    config.nav = _present(config.nav, pages, named)
    if more := sorted(pages - named):
        config.nav.append({"More": more})
    return config


def _present(entries: list[Any], pages: set[str], named: set[str]) -> list[Any]:
    kept = []
    for entry in entries:
        ((title, target),) = entry.items()
        if isinstance(target, list):
            if inner := _present(target, pages, named):
                kept.append({title: inner})
        elif target in pages:
            named.add(target)
            kept.append(entry)
    return kept


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Read lists that follow a paragraph as GitHub does, and unlink what the site has not."""
    if page.file.src_path == "messages.md":
        page.meta["search"] = {"boost": 0.1}
    here = Path(page.file.abs_src_path).parent
    docs = Path(config.docs_dir).resolve()

    def outside(match: re.Match[str]) -> str:
        target = (here / match[2].partition("#")[0]).resolve()
        if target.is_relative_to(docs):
            return match[0]
        if not (target.exists() and target.is_relative_to(docs.parent)):
            log.warning("%s: the link %s leads nowhere", page.file.src_path, match[2])
        name = target.relative_to(docs.parent) if target.exists() else match[2]
        return f"{match[1]} (`{name}`)"

    lines: list[str] = []
    fenced = False
    for line in markdown.split("\n"):
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            before = lines[-1] if lines else ""
            starts = ITEM.match(line) and before.strip() and not line.startswith(" ")
            if starts and not ITEM.match(before) and not before.startswith((" ", "|", "#")):
                lines.append("")
            line = LINK.sub(outside, line)
        lines.append(line)
    return "\n".join(lines)


def on_page_content(content: str, **_: Any) -> str:
    """Turn formulas into MathML, which browsers draw without a script."""

    def formula(match: re.Match[str]) -> str:
        display = "block" if match[1] == "div" else "inline"
        drawn = convert(html.unescape(match[2]).strip(), display=display)
        return BAR.sub(r'<mo\1 lspace="0" rspace="0">', PRIMED.sub(r"<mrow>\1\2</mrow>", drawn))

    return FORMULA.sub(formula, content)
