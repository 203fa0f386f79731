"""Counts and boundaries read from base data through the Database port."""
