-- Writes the rows of one grouping set of a release into its table, which must be the caller's own:
-- query (unless null), grouping, the group columns, value, standard_error.  Values are the bytes of an
-- array with axes of so many rows; each group column follows an axis (-1: none) and has as many labels.
-- Not strict: an error that is the same for all cells, or unknown, is no array.
create or replace function dp.write_cells(
    relation oid, query integer, "grouping" integer, cell_values bytea, errors bytea, error double precision,
    axis_rows integer[], axes integer[], counts integer[], labels text[])
returns bigint
language c volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'dpsql_write_cells';
comment on function dp.write_cells(
    oid, integer, integer, bytea, bytea, double precision, integer[], integer[], integer[], text[]) is
    'internal: writes the rows of a release';
