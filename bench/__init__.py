"""Benchmarks, run by ``make bench NAME=...`` on the private cluster."""
