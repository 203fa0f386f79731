"""Libraries that only tests load into a server."""

from __future__ import annotations

import atexit
import shutil
import subprocess
import tempfile
from pathlib import Path

from dpsql.client.layout import Layout


def compiled(source: str, name: str) -> Path:
    """Compile C for the server with warnings as errors; it reads the library where it is."""
    folder = Path(tempfile.mkdtemp(prefix=f"dpsql-{name}-"))
    folder.chmod(0o755)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    pg_config = Layout.discover().bin / "pg_config"

    def told(option: str) -> list[str]:
        done = subprocess.run([pg_config, option], check=True, capture_output=True, text=True)
        return done.stdout.split()

    written = folder / f"{name}.c"
    written.write_text(source, encoding="utf-8")
    built = folder / f"{name}.so"
    flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-shared", "-fPIC"]
    where = [f"-I{told('--includedir-server')[0]}", *told("--cppflags")]
    subprocess.run([*told("--cc"), *flags, *where, "-o", built, written], check=True)
    built.chmod(0o755)
    return built
