"""The shell inside the server: the only code that sees plpy."""
