"""The library mbi, loaded for use inside a server process.

mbi is an optional extra (Private-PGM, McKenna et al.); it computes with jax.  Loading takes about
a second and 150 MB, so that only those load it who use it.
"""

from __future__ import annotations

import os
import signal
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from dpsql.errors import InvalidParameter

_ONE_THREAD = "--xla_cpu_multi_thread_eigen=false"
#: Compiles with less than half of the memory, a fifth faster.  An unknown flag would end the
#: process, so that only versions get it that are known to know it.
_PLAIN_LOOPS, _KNOWN = "--xla_cpu_use_fusion_emitters=false", ("0.10.",)


def require_mbi() -> None:
    """Refuse what needs mbi where it is not installed; loads nothing.

    Raises
    ------
    InvalidParameter
        Says what to install.
    """
    if any(find_spec(name) is None for name in ("mbi", "jax")):
        raise InvalidParameter(
            "graphical models need the Python library mbi, which the server does not have",
            detail="It is an optional part of dpsql, for Python 3.11 and later.",
            hint="Let the server's administrator run make extras in dpsql's folder, or pip install"
            " 'mbi>=2,<3' with the Python of the server.",
        )


def load() -> tuple[Any, Any]:
    """Return the modules ``mbi`` and ``jax``: one thread, double precision, nothing kept on disk.

    Threads that jax makes while it is loaded take no signals: these are for PostgreSQL's own
    thread, whose handlers expect to run there.
    """
    require_mbi()
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("NPROC", "1")
    wanted = [_ONE_THREAD] + [_PLAIN_LOOPS] * version("jaxlib").startswith(_KNOWN)
    flags = os.environ.get("XLA_FLAGS", "").split()
    os.environ["XLA_FLAGS"] = " ".join(flags + [flag for flag in wanted if flag not in flags])
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        import jax

        jax.config.update("jax_enable_x64", True)
        jax.config.update("jax_enable_compilation_cache", False)
        import mbi

        jax.jit(lambda x: x + 1)(0.0).block_until_ready()  # makes the remaining threads
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return mbi, jax
