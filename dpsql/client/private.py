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

    A running server that was started before the library or the package last changed is restarted:
    it holds both in memory.
    """
    prepare(layout)
    cluster = private_cluster(layout)
    library = layout.bin.parent / "lib" / "dpsql.so"
    held = [library, *layout.packages.rglob("*.py")]
    if cluster.running and max(path.stat().st_mtime for path in held) >= cluster.started:
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
