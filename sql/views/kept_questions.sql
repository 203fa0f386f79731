-- Questions of dp.keep_statistics, for who keeps them and for the owner of all their relations.
create or replace view dp.kept_questions with (security_barrier) as
select k.question, k.query, k.relations, k.kept_by, k.taken_at, k.problem
  from dp.owned_questions() as k;
comment on view dp.kept_questions is 'questions whose boundaries refreshes count, for owners';
