"""The mathematics: numbers in, numbers out; no SQL, no database, no clock, no settings."""
