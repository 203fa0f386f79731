"""SQL in, counting SQL out: parse, validate, canonicalise, query graph, elimination; knows no noise."""
