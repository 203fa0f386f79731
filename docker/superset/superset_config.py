"""Superset of the demonstration."""

import os
from pathlib import Path

home = Path("/var/lib/superset")
SECRET_KEY = os.environ.get("SUPERSET_SECRET_KEY") or (home / "secret").read_text()
SQLALCHEMY_DATABASE_URI = f"sqlite:///{home / 'superset.db'}"
