-- Internal: bytes that the stored answers that a role has paid for may have together.
create or replace function dp.ledger_room()
returns bigint
language sql immutable parallel safe security invoker
set search_path = pg_catalog, pg_temp
return 268435456;
comment on function dp.ledger_room() is 'internal: most bytes of stored answers of a role';

-- Internal: deletes the oldest stored answers that are in no room any more: an answer is in the room of each role that has
-- paid for it, as long as that role's newer ones leave room for it; "more" bytes are about to be stored for "principal".
-- A budget of nearly nothing pays for any number of answers of a million groups.  Asked again, they are charged again.
create or replace function dp.ledger_make_room(principal integer, more bigint)
returns void
language sql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
    with paid as materialized (
        select a.key, a.spend, a.taken_at,
               sum(octet_length(a.payload)) over (order by a.taken_at desc, a.key) as together
          from dp.spend as s join dp.answer as a on a.key = s.key and a.spend = s.source
         where s.principal = ledger_make_room.principal and a.payload is not null),
    locked as materialized (
        select a.key, a.pending_spend is not null as awaited
          from paid as p join dp.answer as a on a.key = p.key and a.spend = p.spend
         where p.together + more > dp.ledger_room()
           and not exists (
               select from dp.spend as o
                where o.source = p.spend and o.principal <> ledger_make_room.principal
                  and (select sum(octet_length(n.payload))
                         from dp.spend as s join dp.answer as n on n.key = s.key and n.spend = s.source
                        where s.principal = o.principal
                          and (n.taken_at > p.taken_at or n.taken_at = p.taken_at and n.key <= p.key))
                      <= dp.ledger_room())
         order by a.key for update of a skip locked),
    emptied as (
        update dp.answer as a set spend = null, payload = null, taken_at = null
          from locked as l where a.key = l.key and l.awaited)
    delete from dp.answer as a using locked as l where a.key = l.key and not l.awaited
$$;
comment on function dp.ledger_make_room(integer, bigint) is 'internal: deletes the oldest stored answers of a role';

-- Stores a computed (perturbed) answer; returns when it was taken, NULL if the charge is unknown or was given up.  The
-- commit may be lost in a crash of the server: the charge stays and asking again is charged again, which the ledger shows
-- as "charged" but never answered.  Where another role has meanwhile paid for the answer that is stored (this one is
-- "fresh"), that answer stays and this one is stored for its role alone.  Only dp_ledger and service sessions may call it.
create or replace function dp.ledger_finish(spend_id bigint, payload text)
returns timestamptz
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    spent dp.spend;
    stored dp.answer;
    now timestamptz := clock_timestamp();
begin
    perform set_config('synchronous_commit', 'off', true);
    delete from dp.failure as f where f.spend = ledger_finish.spend_id;
    update dp.spend as s set state = 'answered'
     where s.id = ledger_finish.spend_id and s.state = 'charged'
    returning s.* into spent;
    if not found then
        return null;
    end if;
    -- Small answers are counted as well, but not at each of them, for counting takes longer than storing one.
    if octet_length(payload) > 100000 or random() < 0.01 then
        perform dp.ledger_make_room(spent.principal, octet_length(payload));
    end if;
    select a.* into stored from dp.answer as a where a.key = spent.key and a.pending_spend = spent.id for update;
    if not found then
        return now;
    end if;
    if dp.ledger_others_paid(stored, spent.principal) then
        update dp.answer as a set pending_spend = null, holder_pid = null, holder_start = null where a.key = stored.key;
        stored.key := dp.ledger_own_key(stored.key, spent.principal);
        update dp.spend as s set key = stored.key where s.id = spent.id;
        insert into dp.answer (key, objects, token) values (stored.key, stored.objects, stored.token)
        on conflict on constraint answer_pkey do nothing;
    end if;
    update dp.answer as a
       set spend = spent.id, payload = ledger_finish.payload, taken_at = now,
           pending_spend = null, holder_pid = null, holder_start = null
     where a.key = stored.key;
    return now;
end
$$;
comment on function dp.ledger_finish(bigint, text) is 'internal: stores a computed answer';

alter function dp.ledger_finish(bigint, text) owner to dp_ledger;
