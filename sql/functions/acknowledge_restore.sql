-- Accepts that the ledger now lives here: after a dump was restored, the database copied, a
-- backup recovered or a standby promoted.  Spends since the backup are unknown to it: enter them
-- with dp.record_loss, or lower the budgets.  Budgets are attached to roles by name again.
-- Callers: members of dp_owner.  Security definer on purpose: writes the catalogue.
create or replace function dp.acknowledge_restore(note text)
returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    missing text;
    moved boolean;
    loaded boolean;
begin
    perform dp.require_administrator();
    if note is null or note = '' then
        raise exception using
            errcode = 'PD040', message = 'parameter "note" of dp.acknowledge_restore must not be empty';
    end if;
    -- Role oids mean nothing in another cluster.
    select coalesce((select l.system_identifier <> p.system_identifier
                       from dp.ledger_identity as l, dp.ledger_place() as p
                      order by l.id desc limit 1), false)
      into moved;
    if moved then
        update dp.principal set role_oid = null;
        update dp.principal as p
           set role_oid = r.oid
          from pg_catalog.pg_roles as r
         where r.rolname = p.role_name
           and p.id = (select max(q.id) from dp.principal as q where q.role_name = p.role_name);
        select string_agg(quote_ident(p.role_name), ', ' order by p.role_name)
          into missing
          from dp.principal as p
         where p.role_oid is null;
        if missing is not null then
            raise notice using
                message = format('roles that do not exist here: %s', missing),
                hint = 'Their losses are kept, and are theirs again when a budget is granted to a role of that name.';
        end if;
    end if;
    -- Nor do numbers of columns after a dump was loaded, which is when the ledger is another one.
    loaded := (select l.incarnation from dp.ledger_identity as l order by l.id desc limit 1)
              is distinct from (select i.incarnation from dp.ledger_place() as i);
    if loaded then
        perform dp.find_unit_columns();
        perform dp.number_changes();
    end if;
    insert into dp.ledger_identity (incarnation, system_identifier, timeline, database, note, recorded_by)
    select i.incarnation, i.system_identifier, i.timeline, i.database, acknowledge_restore.note,
           (select r.rolname from pg_catalog.pg_roles as r where r.oid = dp.caller())
      from dp.ledger_place() as i;
    if loaded then
        -- nor of relations; of ways that are not there any more only names are left.  From here on the ledger is in
        -- place, so that the ways are those of all declarations, cut keys included.
        update dp.covered as c
           set ways = (select o.ways
                         from dp.coverage(array(select k.relation::oid from dp.covered as k where k.relation is not null)) as o
                        where o.relation = c.relation and o.root = c.root and o.shown = c.shown
                        limit 1)
         where c.shown <> 'row';
    end if;
    perform dp.touch_catalogue(declarations => false);
    perform dp.show_exposed_again();
    -- a dump has no views that refuse: they belong to the extension
    perform dp.show_refusing(array(select d.relation from dp.declarations() as d where d.kind = 'protected'));
end
$$;
comment on function dp.acknowledge_restore(text) is 'accept that the ledger lives here after a restore or promotion';
