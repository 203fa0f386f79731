-- Has every refresh of a relation count the boundaries of a question over it as well, without its
-- filters, so that residual sensitivity can be had from stored statistics.  Callers: members of
-- dp_owner that own all relations of the question.  Not pinned on purpose: the caller's search_path
-- must reach dp.deparse; every name here is qualified and nothing here has more rights than the caller.
create or replace function dp.keep_statistics(query text)
returns void
language sql volatile parallel unsafe security invoker
as $sql$ select dp.keep_question(dp.deparse(query), query) $sql$;
comment on function dp.keep_statistics(text) is
    'have every refresh count the boundaries of a question, too';

-- Internal: the same with a text that means one thing only.  Security definer on purpose: writes a
-- table of ours.
create or replace function dp.keep_question(query text, source text)
returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    relations oid[];
begin
    perform dp.require_administrator();
    if query is null then
        raise exception using errcode = 'PD040', message = 'parameter "query" must not be null';
    end if;
    relations := dp.question_relations(query, source);
    insert into dp.kept_query as k (query, relations, kept_by)
    values (query, relations, dp.caller())
    on conflict on constraint kept_query_query_key do update
       set relations = excluded.relations, kept_by = excluded.kept_by;
end
$$;
comment on function dp.keep_question(text, text) is 'internal: dp.keep_statistics';

-- The rows of the view dp.kept_questions: those of the reader, or of relations that he owns, as far as
-- they still exist.  "problem": why the next refresh will not count it, from public facts.  Security
-- definer on purpose: reads a table of ours.
create or replace function dp.owned_questions()
returns table (question integer, query text, relations text[], kept_by text, taken_at timestamptz, problem text)
language sql stable parallel restricted security definer
set search_path = pg_catalog, pg_temp
as $$
    select k.id, k.query, r.names, k.kept_by::regrole::text,
           (select max(m.taken_at)
              from dp.statistic as s join dp.measurement as m on m.id = s.measurement
             where s.kept = k.id),
           case
               when r.gone then 'a relation was dropped: the next refresh of any relation forgets the question'
               when r.uncounted is not null
                   then format('changes of %s are not counted: SELECT dp.collect_statistics(...)', r.uncounted)
               when not exists (select from dp.statistic as s where s.kept = k.id)
                   then 'no refresh of its relations has counted it; if one was renamed, keep it anew'
           end
      from dp.kept_query as k
     cross join lateral (
           select array_agg(u.relation::regclass::text order by u.relation) as names,
                  bool_or(c.oid is null) as gone,
                  bool_or(c.oid is not null)
                      and bool_and(c.oid is null or pg_has_role(dp.caller(), c.relowner, 'usage')) as own,
                  string_agg(u.relation::regclass::text, ', ' order by u.relation)
                      filter (where c.oid is not null and dp.statistics_fingerprint(c.oid) is null) as uncounted
             from unnest(k.relations) as u(relation)
             left join pg_class as c on c.oid = u.relation) as r
     where dp.caller_administers()
       and (r.own or exists (select from pg_roles as o
                              where o.oid = k.kept_by and pg_has_role(dp.caller(), o.oid, 'usage')))
$$;
comment on function dp.owned_questions() is 'internal: dp.kept_questions';

-- Takes it back: by the number in dp.kept_questions, its text there, or any text that means the same.
-- Callers: members of dp_owner that own all relations that still exist.
-- Not pinned on purpose: as dp.keep_statistics.
create or replace function dp.unkeep_statistics(query text)
returns void
language sql volatile parallel unsafe security invoker
as $sql$
    select dp.unkeep_question(
        case when exists (select from dp.owned_questions() as k where k.query operator(pg_catalog.=) unkeep_statistics.query)
             then query else dp.deparse(query) end)
$sql$;
comment on function dp.unkeep_statistics(text) is 'take back dp.keep_statistics';

create or replace function dp.unkeep_statistics(question integer)
returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    if question is null then
        raise exception using errcode = 'PD040', message = 'parameter "question" must not be null';
    end if;
    perform dp.unkeep_question(coalesce(
        (select k.query from dp.owned_questions() as k where k.question = unkeep_statistics.question), ''));
end
$$;
comment on function dp.unkeep_statistics(integer) is 'take back dp.keep_statistics, by the number in dp.kept_questions';

-- Internal: the same.  Security definer on purpose: writes a table of ours.
create or replace function dp.unkeep_question(query text)
returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    found_relations oid[];
begin
    perform dp.require_administrator();
    if query is null then
        raise exception using errcode = 'PD040', message = 'parameter "query" must not be null';
    end if;
    select k.relations into found_relations
      from dp.kept_query as k where k.query = unkeep_question.query;
    if not found then
        raise exception using
            errcode = 'PD040',
            message = 'no statistics are kept for this question',
            hint = 'SELECT question, query FROM dp.kept_questions shows for which ones they are.';
    end if;
    perform dp.require_ownership(c.oid::regclass)
       from pg_class as c where c.oid = any (found_relations);
    delete from dp.kept_query as k where k.query = unkeep_question.query;
end
$$;
comment on function dp.unkeep_question(text) is 'internal: dp.unkeep_statistics';
