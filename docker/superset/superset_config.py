"""Superset of the demonstration."""

import os
from pathlib import Path

home = Path("/var/lib/superset")
SECRET_KEY = os.environ.get("SUPERSET_SECRET_KEY") or (home / "secret").read_text()
SQLALCHEMY_DATABASE_URI = f"sqlite:///{home / 'superset.db'}"

# docs/superset.md tells why: grains that are refused; columns of virtual datasets without a row.
TIME_GRAIN_DENYLIST = ["PT5S", "PT30S", "PT5M", "PT10M", "PT15M", "PT30M"]


def FLASK_APP_MUTATOR(_app):
    """Describe virtual datasets without reading a row."""
    from superset.db_engine_specs.postgres import PostgresEngineSpec

    PostgresEngineSpec.get_column_description_limit_size = classmethod(lambda _: 0)
