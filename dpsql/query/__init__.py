"""SQL in, counting SQL out: parse, validate, query graph, elimination; knows no noise."""
