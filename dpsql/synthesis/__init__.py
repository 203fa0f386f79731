"""Links between synthetic tables: the mathematics of papers/relational-synthetic-data.txt."""
