-- What long commands are doing, one row each: never how many rows they have read.  Who sees what, and why that
-- is no leak, is in functions/running_commands.sql.
create or replace view dp.progress with (security_barrier) as
select p.pid, p.command, p.relation, p.phase, p.rounds_done, p.rounds_total, p.budget_used, p.budget,
       p.budget_unit, p.started_at, p.time_left
  from dp.running_commands() as p;
comment on view dp.progress is 'running releases, refreshes and buildings of sketches: phase, rounds, budget, time left';
