"""Budgets and spends, kept on a connection of their own."""
