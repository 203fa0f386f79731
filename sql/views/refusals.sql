-- How many statements were refused, by role, reason and hour (UTC): no text of any.  A role sees its own, members
-- of dp_owner those of all.  A restart keeps the counts, a crash does not: dp.refusals_since().
--
-- advice  what helps against refusals of this SQLSTATE
-- hint    what the client was told, where no name or number of the statement is part of it
create or replace view dp.refusals with (security_barrier) as
select r.role, r.sqlstate, r.reason, r.advice, r.hint, r.hour, r.refused
  from dp.refused_statements() as r;
comment on view dp.refusals is 'how many statements were refused, by role, reason and hour';
