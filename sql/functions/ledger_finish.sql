-- Internal: bytes that the stored answers that a role has paid for may have together.
create or replace function dp.ledger_room()
returns bigint
language sql immutable parallel safe security invoker
set search_path = pg_catalog, pg_temp
return 268435456;
comment on function dp.ledger_room() is 'internal: most bytes of stored answers of a role';

-- Internal: deletes the oldest stored answers of a role until those that it has paid for fit into dp.ledger_room().  An
-- answer stays if it still fits into the room of another role that has paid for it.  Without this limit a tiny budget
-- could fill the disk.  Whoever asks a deleted answer again is charged again.
create or replace function dp.ledger_make_room(principal integer)
returns bigint
language sql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
    with beyond as materialized (
        select p.key, p.spend
          from (select a.key, a.spend, sum(octet_length(a.payload)) over (order by a.taken_at desc, a.key) as together
                  from dp.spend as s join dp.answer as a on a.key = s.key and a.spend = s.source
                 where s.principal = ledger_make_room.principal and a.payload is not null) as p
         where p.together > dp.ledger_room()),
    others as materialized (
        select a.key, a.spend,
               sum(octet_length(a.payload)) over (partition by s.principal order by a.taken_at desc, a.key) as together
          from dp.spend as s join dp.answer as a on a.key = s.key and a.spend = s.source
         where a.payload is not null
           and s.principal in (select o.principal from beyond as b join dp.spend as o on o.source = b.spend
                                where o.principal <> ledger_make_room.principal)),
    locked as materialized (
        select a.key
          from beyond as b join dp.answer as a on a.key = b.key and a.spend = b.spend
         where not exists (select from others as o
                            where o.key = b.key and o.spend = b.spend and o.together <= dp.ledger_room())
         order by a.key for update of a skip locked)
    select dp.ledger_delete_answers(array(select l.key from locked as l))
$$;
comment on function dp.ledger_make_room(integer) is 'internal: deletes the oldest stored answers of a role';

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
    -- Last, since it waits for no lock.  Counting takes longer than storing a small answer, so that small ones start a
    -- count once in a hundred times only.
    if octet_length(payload) > 100000 or random() < 0.01 then
        perform dp.ledger_make_room(spent.principal);
    end if;
    return now;
end
$$;
comment on function dp.ledger_finish(bigint, text) is 'internal: stores a computed answer';

alter function dp.ledger_finish(bigint, text) owner to dp_ledger;
