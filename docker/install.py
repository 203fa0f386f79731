"""Build the extension; put it, its package and its dependencies below a folder, for an image."""

from __future__ import annotations

import compileall
import os
import shutil
import sys
from pathlib import Path
from py_compile import PycInvalidationMode

source, out, major = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
sys.path.insert(0, str(source))

from dpsql import __version__  # noqa: E402
from dpsql.client.authentication import hba_block, ident_block  # noqa: E402
from dpsql.client.build import copy_package  # noqa: E402
from dpsql.client.layout import run  # noqa: E402

PG_CONFIG = f"/usr/lib/postgresql/{major}/bin/pg_config"

library = run([PG_CONFIG, "--pkglibdir"]).strip()
package = Path(library) / "dpsql" / __version__
dependencies = package / "site-packages"
venv = next(Path(sys.prefix).glob("lib/python3*/site-packages"))

run(
    [
        *("make", "-C", source / "sql", "BUILD=/build", f"DESTDIR={out}", f"PG_CONFIG={PG_CONFIG}"),
        *(f"PACKAGE_DIR={package}", f"SITE_PACKAGES={dependencies}", "install"),
    ]
)
copy_package(source, out / str(package).lstrip("/"))
tools = shutil.ignore_patterns(
    "pip", "pip-*", "setuptools*", "pkg_resources", "_distutils_hack", "*.pth", "__pycache__"
)
shutil.copytree(venv, out / str(dependencies).lstrip("/"), ignore=tools)

blocks = out / "usr/local/share/dpsql"
blocks.mkdir(parents=True)
(blocks / "pg_hba.conf").write_text(
    hba_block()
    + "local all all peer\n"
    + "host all all all scram-sha-256\n"
    + "local replication all peer\n"
)
(blocks / "pg_ident.conf").write_text(ident_block("postgres"))

# The same sources give the same files: no times, neither of files nor in what is compiled.
for folder in sorted(out.rglob("__pycache__")):
    shutil.rmtree(folder)
compileall.compile_dir(
    out, quiet=2, stripdir=out, prependdir="/", invalidation_mode=PycInvalidationMode.UNCHECKED_HASH
)
for path in sorted(out.rglob("*")):
    os.utime(path, (0, 0), follow_symlinks=False)
