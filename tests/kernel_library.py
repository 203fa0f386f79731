"""The compiled loops of the array kernel, outside a server; and the sizes that tests make tiny."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from dpsql.statistics import native
from dpsql.statistics.loops import Loops
from dpsql.statistics.portable import Portable

HOOK = Path(__file__).resolve().parent.parent / "sql" / "hook"

#: Every limit of the kernel, so small that a few rows cross it.
TINY = {
    "BLOCK": 4,
    "BUDGET": 3,
    "MOST_CELLS": 5,
    "BITMAP": 3,
    "ROOM": 2,
    "SLOTS": 2,
    "PAGES": 1,
    "PACKED": 64,
}


@cache
def compiled() -> native.Native:
    """Compile the plain C files of the kernel with warnings as errors, and load them."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler is not None, "the tests need a C compiler; make packages installs one"
    library = Path(tempfile.mkdtemp(prefix="dpsql-kernel-")) / "kernel.so"
    sources = sorted(str(path) for path in HOOK.glob("kernel_*.c"))
    flags = ["-O2", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, "-o", str(library), *sources], check=True)
    loops = native.load(str(library))
    assert loops is not None
    shutil.rmtree(library.parent)
    return loops


def loops_named(name: str) -> Loops:
    """Return the compiled or the portable loops."""
    return compiled() if name == "native" else Portable()
