"""Links between synthetic tables: the mathematics of papers/relational-synthetic-data.txt.

Reading order: `records` and `relationship` say what is given, `links` is the adaptive loop
(Algorithms 1 and 2) and `selection` what it buys (3 and 4).  The links that it refines are held
by a back end:

- `backends.ByPairs`: every pair of rows, as published (`pairs`: Algorithm 5; `rounding`: 6 to 8;
  `slicing`: 9).  The reference, for small tables.
- `backends.ByTypes`: pairs of *types* of rows (`types` has the proof that nothing is lost), fitted
  by `type_descent` within a `polytope`, rounded by `controlled`, and dealt to rows by `blocks`
  and `degrees`.
- `swaps.BySwaps`: the links themselves, bettered one by one.
- `by_slices.BySlices`: types, and for more attributes than they can hold slices of rows and moves
  of links, which begin with what types found.  What copies are made with.

What is copied, and how its tables hang together, is in `schema` (the vocabulary) and `planning`,
with `plan_keys` and `plan_columns`.

What was generated (`generated`) becomes columns in `assembling`: every column is numbers and a way
to write them (`values`), so that foreign keys take their parents' through any chain; `keys` are
made up, `bins` drawn from, `relinking` and `distinctness` mend what constraints forbid.  `stored`
keeps plans as text.

Counts come from the caller, noise and private choices too (`dpsql.workload.supply`); seeded
generators round and sample, which is post-processing.  Nothing here knows SQL.
"""
