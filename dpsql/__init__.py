"""dpsql: differential privacy inside PostgreSQL.

A tour, following one query through the layers: ``server.entry`` is the one door from PL/Python;
``engine.answer`` reads like the sentence *prepare, look up, price, charge, compute, finish*;
``query`` turns the text into counting queries, ``statistics`` runs them, ``core`` holds the
mathematics (sensitivities, mechanisms, noise) and ``ledger`` the budgets.
"""

from dpsql._version import __version__

__all__ = ["__version__"]
