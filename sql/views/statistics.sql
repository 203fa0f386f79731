-- Stored statistics, for the owner of all relations that they are of: they are as secret as the rows.
create or replace view dp.statistics with (security_barrier) as
select s.kind, s.relations, s.identity, s.value, s.taken_at, s.changes, s.kept_question
  from dp.owned_statistics() as s;
comment on view dp.statistics is 'stored statistics and the changes since, for owners';
