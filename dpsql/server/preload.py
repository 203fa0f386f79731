"""What is imported once, in the postmaster, when the library is loaded at server start.

``sql/hook/preload.c`` imports this module; backends inherit what it brings by ``fork()``.
All of the server's side of the package comes in, with its dependencies, and nothing is done: a
module that starts a thread, opens a file or draws random numbers when it is imported must not
be among them.
"""

from __future__ import annotations

import gc
import os
import pkgutil
from importlib import import_module

import dpsql.server.entry  # sets the number of BLAS threads, so it comes first

#: What the package imports no sooner than it needs it.
_LATER = ("json", "numpy")
#: Packages that no backend imports.
_ELSEWHERE = ("dpsql.client",)


def modules() -> list[str]:
    """Name the modules of the package that a backend can import."""
    found = pkgutil.walk_packages(dpsql.__path__, "dpsql.", onerror=_fail)
    return [module.name for module in found if not module.name.startswith(_ELSEWHERE)]


def single_threaded() -> bool:
    """Whether this process has one thread; true where the system does not tell."""
    try:
        return len(os.listdir("/proc/self/task")) == 1
    except OSError:
        return True


def load() -> None:
    """Import everything.

    Raises
    ------
    RuntimeError
        If something started a thread: a process with one must not be forked.
    """
    for name in (*_LATER, *modules()):
        import_module(name)
    if not single_threaded():
        raise RuntimeError("an import started a thread; the server must not fork with one")
    # The collector leaves alone what is there now, so that backends go on sharing its pages.
    gc.collect()
    gc.freeze()


def _fail(name: str) -> None:
    raise ImportError(f"cannot import {name}")
