"""Sensitivity methods: how one aggregate of a question is answered privately.

Each method is one class, a `SensitivityMethod` (`base`): it is quoted from public facts, plans what
to read, and releases noised values.  `select` lists the classes; `rows`, `units`, `multi_unit` and
`public` hold one each.  Pricing, reading and explaining use this interface only.
Noise comes from `dpsql.core.mechanisms`, exact numbers from `dpsql.statistics`.
"""
