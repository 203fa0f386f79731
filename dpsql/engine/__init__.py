"""Use cases: answer, explain, sensitivity."""
