"""Workloads and strategies: linear algebra and convex programs, no SQL and no noise."""
