"""Put extension, hook and package where a server finds them."""

from __future__ import annotations

import compileall
import os
from dataclasses import dataclass
from pathlib import Path

from dpsql._version import __version__
from dpsql.client.layout import Layout, make_tree, run, site_packages


@dataclass(frozen=True, slots=True)
class Target:
    """A server to install into.

    Attributes
    ----------
    pg_config : Path
        The server's ``pg_config``.
    package_dir : Path
        The versioned folder for the Python package.
    site_packages : Path
        The folder with the package's dependencies.
    build_dir : Path
        Where products are built.
    """

    pg_config: Path
    package_dir: Path
    site_packages: Path
    build_dir: Path


def copy_package(clone: Path, target: Path) -> bool:
    """Copy the package into its versioned folder, changed files only, and compile it.

    Backends may not write there, so they could not keep what they compile.

    Returns
    -------
    bool
        Whether anything changed; a running server holds what it imported when it started.
    """
    package = target / "dpsql"
    changed = False
    wanted = {path.relative_to(clone / "dpsql") for path in (clone / "dpsql").rglob("*.py")}
    for relative in sorted(wanted):
        destination = package / relative
        content = (clone / "dpsql" / relative).read_bytes()
        if destination.exists() and destination.read_bytes() == content:
            continue
        destination.parent.mkdir(parents=True, exist_ok=True)
        temporary = destination.with_suffix(f".{os.getpid()}")
        temporary.write_bytes(content)
        temporary.chmod(0o644)
        temporary.replace(destination)
        changed = True
    for path in package.rglob("*.py"):
        if path.relative_to(package) not in wanted:
            path.unlink()
            changed = True
    compileall.compile_dir(package, quiet=2)
    return changed


def install(clone: Path, target: Target) -> bool:
    """Build and install extension and hook by ``sql/Makefile``, then the package.

    Returns
    -------
    bool
        Whether a running server must be restarted to hold what is installed now.

    Raises
    ------
    SetupError
        If the build fails.
    """
    library = Path(run([target.pg_config, "--pkglibdir"]).strip()) / "dpsql.so"
    before = library.read_bytes() if library.exists() else b""
    environment = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL")}
    run(
        [
            "make",
            "-C",
            clone / "sql",
            f"BUILD={target.build_dir}",
            f"PG_CONFIG={target.pg_config}",
            f"PACKAGE_DIR={target.package_dir}",
            f"SITE_PACKAGES={target.site_packages}",
            "install",
        ],
        env=environment,
    )
    package_changed = copy_package(clone, target.package_dir)
    return package_changed or library.read_bytes() != before


def private_target(layout: Layout) -> Target:
    """Return the private tree as a place to install into."""
    return Target(
        pg_config=layout.bin / "pg_config",
        package_dir=layout.packages,
        site_packages=site_packages(),
        build_dir=layout.home / "build",
    )


def prepare(layout: Layout) -> None:
    """Bring the private tree, and dpsql in it, up to date with the clone."""
    previous = os.umask(0o022)
    try:
        make_tree(layout)
        install(layout.clone, private_target(layout))
    finally:
        os.umask(previous)


__all__ = ["Target", "__version__", "copy_package", "install", "prepare", "private_target"]
