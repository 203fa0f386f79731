"""Mechanisms: a ``plan_*`` from public facts only, then ``Plan.release`` on true counts.

``select.choose`` picks one; see docs/proofs for the claim and proof of each.
"""
