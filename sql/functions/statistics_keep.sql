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

-- Takes it back.  Callers: members of dp_owner that own all relations that still exist.
create or replace function dp.unkeep_statistics(query text)
returns void
language sql volatile parallel unsafe security invoker
as $sql$ select dp.unkeep_question(dp.deparse(query)) $sql$;
comment on function dp.unkeep_statistics(text) is 'take back dp.keep_statistics';

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
    select k.relations into found_relations
      from dp.kept_query as k where k.query = unkeep_question.query;
    if not found then
        raise exception using
            errcode = 'PD040',
            message = 'no statistics are kept for this question',
            hint = 'SELECT DISTINCT kept_question FROM dp.statistics shows for which ones they are.';
    end if;
    perform dp.require_ownership(c.oid::regclass)
       from pg_class as c where c.oid = any (found_relations);
    delete from dp.kept_query as k where k.query = unkeep_question.query;
end
$$;
comment on function dp.unkeep_question(text) is 'internal: dp.unkeep_statistics';
