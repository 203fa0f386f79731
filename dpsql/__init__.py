"""dpsql: differential privacy inside PostgreSQL.

A tour, following one query through the layers: ``server.entry`` is the one door from PL/Python;
``engine.answer`` reads: prepare, look the text up, list public groups, price, debit and run,
finish; ``query`` turns the text into counting queries, ``statistics`` runs them, ``core`` holds the
mathematics (sensitivities, mechanisms, noise) and ``ledger`` the budgets.
"""

from dpsql._version import __version__

__all__ = ["__version__"]
