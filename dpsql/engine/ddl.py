"""Statements that define: names, and what PostgreSQL's catalogue has as text, between key words.

Definitions come from ``pg_get_constraintdef`` and its like, which no tree of ours could say as
faithfully; no other module joins such texts.  Tables are qualified and quoted by the caller, names
of what is in them are quoted here.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.relation import quote_identifier
from dpsql.sqltree import Tree, constant, render


def create_schema(name: str) -> str:
    """Make a schema."""
    return f"CREATE SCHEMA {quote_identifier(name)}"


def create_table(table: str, parts: Sequence[str]) -> str:
    """Make a table of columns and constraints; see `column` and `constraint`."""
    return f"CREATE TABLE {table} ({', '.join(parts)})"


def column(name: str, type_: str, *, collation: str | None = None, value: str = "") -> str:
    """Define a column; ``value`` says where its values come from, if anything does."""
    collated = f" COLLATE {collation}" if collation else ""
    return f"{quote_identifier(name)} {type_}{collated}{f' {value}' if value else ''}"


def not_null(definition: str) -> str:
    """Define a column that cannot be NULL."""
    return f"{definition} NOT NULL"


def identity(*, always: bool) -> str:
    """Say that a column counts rows by itself."""
    return f"GENERATED {'ALWAYS' if always else 'BY DEFAULT'} AS IDENTITY"


def generated(expression: str) -> str:
    """Say that a column is computed, as ``pg_get_expr`` writes it."""
    return f"GENERATED ALWAYS AS ({expression}) STORED"


def default(expression: str) -> str:
    """Say that a column has a default, as ``pg_get_expr`` writes it."""
    return f"DEFAULT {expression}"


def constraint(name: str, definition: str) -> str:
    """Define a constraint, as ``pg_get_constraintdef`` writes it."""
    return f"CONSTRAINT {quote_identifier(name)} {definition}"


def foreign_key(
    columns: Sequence[str], parent: str, parent_columns: Sequence[str], terms: str
) -> str:
    """Define a foreign key; ``terms`` are what follows, such as ON DELETE."""
    own, theirs = names(columns), names(parent_columns)
    return f"FOREIGN KEY ({own}) REFERENCES {parent} ({theirs}){terms}"


def names(columns: Sequence[str]) -> str:
    """List names, quoted."""
    return ", ".join(map(quote_identifier, columns))


def add_constraint(table: str, name: str, definition: str) -> str:
    """Add a constraint to a table."""
    return f"ALTER TABLE {table} ADD CONSTRAINT {quote_identifier(name)} {definition}"


def set_storage(table: str, name: str, storage: str) -> str:
    """Say how long values of a column are stored."""
    return f"ALTER TABLE {table} ALTER {quote_identifier(name)} SET STORAGE {storage}"


def set_default(table: str, name: str, value: Tree) -> str:
    """Give a column a default."""
    return f"ALTER TABLE {table} ALTER {quote_identifier(name)} SET DEFAULT {render(value)}"


def create_sequence(sequence: str, type_: str, table: str, name: str) -> str:
    """Make the sequence of a column, which goes with it."""
    return f"CREATE SEQUENCE {sequence} AS {type_} OWNED BY {table}.{quote_identifier(name)}"


def create_index(name: str, table: str, method: str, *, unique: bool) -> str:
    """Make an index; ``method`` is what follows USING, as ``pg_get_indexdef`` writes it."""
    create = "CREATE UNIQUE INDEX" if unique else "CREATE INDEX"
    return f"{create} {quote_identifier(name)} ON {table} USING {method}"


def comment_on_table(table: str, text: str) -> str:
    """Say something of a table."""
    return _comment(f"TABLE {table}", text)


def comment_on_column(table: str, name: str, text: str) -> str:
    """Say something of a column."""
    return _comment(f"COLUMN {table}.{quote_identifier(name)}", text)


def comment_on_constraint(table: str, name: str, text: str) -> str:
    """Say something of a constraint."""
    return _comment(f"CONSTRAINT {quote_identifier(name)} ON {table}", text)


def _comment(what: str, text: str) -> str:
    return f"COMMENT ON {what} IS {render(constant(text))}"


def drop_tables(tables: Sequence[str]) -> str:
    """Drop tables together."""
    return f"DROP TABLE {', '.join(tables)}"


def hold(tables: Sequence[str], *, only: bool = False) -> str:
    """Keep tables as they are until the transaction ends; ``only``: not what inherits from them."""
    return f"LOCK TABLE {'ONLY ' if only else ''}{', '.join(tables)} IN ACCESS SHARE MODE"


def grant_select(table: str, role: str) -> str:
    """Let a role read a table."""
    return f"GRANT SELECT ON {table} TO {quote_identifier(role)}"


def analyze(table: str) -> str:
    """Have the planner's statistics of a table computed."""
    return f"ANALYZE {table}"
