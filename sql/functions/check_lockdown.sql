-- Lists every way that is left, of those that dpsql knows, by which a role that must learn nothing can learn of protected
-- rows without paying, with the statement that closes it.  Callers: members of dp_owner.  "trusted" names roles that may
-- know, such as the application's.  Reads the catalogue only.
-- Security definer on purpose: some settings and catalogues are shown to superusers only.
create or replace function dp.check_lockdown(trusted regrole[] default '{}')
returns table (hole text, object text, who text, severity text, why text, statement text)
language plpgsql stable parallel restricted security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    watched constant oid[] := dp.watched_roles(trusted);
    guarded constant oid[] := dp.guarded_relations(null);
begin
    perform dp.require_administrator();
    return query
    select h.hole, h.object, h.who, h.severity, h.why, h.statement || ';'
      from (select * from dp.holes_of_relations(guarded, watched)
             union all select * from dp.holes_of_keys(guarded, watched)
             union all select * from dp.holes_of_triggers(guarded, watched)
             union all select * from dp.holes_of_functions(guarded, watched)
             union all select * from dp.holes_of_copies(guarded, watched)
             union all select * from dp.holes_of_shards(guarded, watched)
             union all select * from dp.holes_of_roles(guarded, watched)
             union all select * from dp.holes_of_schemas(watched)
             union all select * from dp.holes_of_settings(watched)
             union all select * from dp.holes_of_catalogue(watched)) as h
     order by array_position(array['critical', 'high', 'medium', 'low'], h.severity), h.hole, h.object, h.who, h.statement;
end
$$;
comment on function dp.check_lockdown(regrole[]) is
    'ways that are left to learn of protected rows without paying, with the statement that closes each';
