"""The version, written once; ``sql/dpsql.control`` must agree (a test compares them)."""

__version__ = "0.1.0"
