-- Stored statistics and sketches, for the owner of all relations that they are of: they are as secret
-- as the rows.
create or replace view dp.statistics with (security_barrier) as
select s.kind, s.relations, s.identity, s.value, s.taken_at, s.changes, s.kept_question,
       s.estimators
  from dp.owned_statistics() as s;
comment on view dp.statistics is 'stored statistics and sketches with the changes since, for owners';
