"""Workloads, strategies and their errors: linear algebra and convex programs only."""
