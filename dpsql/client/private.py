"""The clone's own cluster, the one of ``make up``."""

from __future__ import annotations

import os

from dpsql.client.build import prepare
from dpsql.client.cluster import Cluster
from dpsql.client.layout import Layout

_MIB = 2**20


def private_cluster(layout: Layout) -> Cluster:
    """Return the clone's cluster, running or not."""
    return Cluster(layout.bin, layout.data, layout.socket, layout.log, _settings())


def start(layout: Layout) -> Cluster:
    """Bring the installation up to date and start the cluster.

    A running server that holds another library than the one just built is restarted.
    """
    library = layout.bin.parent / "lib" / "dpsql.so"
    before = library.read_bytes() if library.exists() else b""
    prepare(layout)
    cluster = private_cluster(layout)
    after = library.read_bytes() if library.exists() else b""
    if before != after:
        cluster.stop()
    cluster.start()
    return cluster


def _settings() -> dict[str, str]:
    """Modest shares of this machine's memory."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // _MIB
    return {
        "shared_buffers": f"{max(128, min(memory // 16, 4096))}MB",
        "work_mem": f"{max(8, min(memory // 256, 128))}MB",
        "maintenance_work_mem": f"{max(64, min(memory // 32, 1024))}MB",
        "effective_cache_size": f"{max(256, memory // 2)}MB",
        "max_wal_size": "4GB",
        "wal_compression": "on",
    }
