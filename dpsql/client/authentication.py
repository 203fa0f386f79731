"""The lines that let the server's own processes, and nobody else, be the role of service sessions.

Backends connect to the server to have questions answered (PRIVACY.md section 2).  They run as the
server's OS user, so ``peer`` tells them from everybody else without a password that could leak.
Rules are tried in order, so ours come first; the role is refused over the network, where a broad
``trust`` or a guessed password could let somebody in.
"""

from __future__ import annotations

import os
from pathlib import Path

ROLE = "dp_executor"
MAP = "dpsql"
_BEGIN = "# dpsql begin:"
BEGIN = f"{_BEGIN} service sessions; must stay first"
END = "# dpsql end"


def quote(name: str) -> str:
    """Quote a name for pg_hba.conf or pg_ident.conf."""
    return '"' + name.replace('"', '""') + '"'


def hba_block() -> str:
    """Return the lines for pg_hba.conf."""
    return "\n".join(
        [
            BEGIN,
            f"local all {ROLE} peer map={MAP}",
            f"host all {ROLE} all reject",
            END,
            "",
        ]
    )


def ident_block(os_user: str) -> str:
    """Return the lines for pg_ident.conf; ``os_user`` runs the server."""
    return "\n".join([BEGIN, f"{MAP} {quote(os_user)} {ROLE}", END, ""])


def with_block(text: str, block: str) -> str:
    """Return a file's text with the block first, in place of one that was there."""
    kept: list[str] = []
    inside = False
    for line in text.splitlines(keepends=True):
        if line.startswith(_BEGIN):
            inside = True
        if not inside:
            kept.append(line)
        if line.startswith(END):
            inside = False
    return block + "".join(kept)


def put_block(path: Path, block: str) -> bool:
    """Put the block into a file, keeping owner and mode; tell whether that changed it."""
    before = path.read_text()
    after = with_block(before, block)
    if after == before:
        return False
    replace_text(path, after)
    return True


def replace_text(path: Path, text: str) -> None:
    """Replace a file's text in one step, keeping owner and mode."""
    path = path.resolve()
    status = path.stat()
    temporary = path.with_name(f"{path.name}.dpsql-{os.getpid()}")
    try:
        temporary.touch(mode=0o600)
        temporary.write_text(text)
        if os.getuid() == 0:
            os.chown(temporary, status.st_uid, status.st_gid)
        temporary.chmod(status.st_mode & 0o777)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
