"""TPC-H tables by DuckDB's generator, written as files that COPY reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dpsql.client.layout import SetupError

TABLES = ("region", "nation", "part", "supplier", "partsupp", "customer", "orders", "lineitem")


def generate(folder: Path, scale_factor: float) -> Iterator[tuple[str, Path]]:
    """Generate the tables and yield (table, CSV file without header, separator ``|``).

    The keys equal those of the official generator at the same scale factor.  A file may be
    deleted when the next one is asked for.

    Raises
    ------
    SetupError
        If DuckDB and its extension are of different versions.
    """
    import duckdb
    import duckdb_extension_tpch

    extensions = Path(duckdb_extension_tpch.__file__).parent / "extensions"
    library = extensions / f"v{duckdb.__version__}" / "tpch.duckdb_extension"
    if not library.exists():
        raise SetupError(
            f"duckdb {duckdb.__version__} has no TPC-H extension in {extensions}\n"
            "install the same version of duckdb and duckdb-extension-tpch"
        )
    with duckdb.connect() as connection:
        connection.execute("set threads = 2")
        connection.execute("set preserve_insertion_order = true")
        connection.execute(f"load '{str(library).replace(chr(39), 2 * chr(39))}'")
        connection.execute(f"call dbgen(sf = {float(scale_factor)!r})")
        for table in TABLES:
            path = folder / f"{table}.csv"
            connection.execute(f"copy {table} to '{path}' (format csv, header false, delim '|')")
            yield table, path
