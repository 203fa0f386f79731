-- Sets how long answers over a protected relation are repeated for nothing; a question over several
-- relations obeys the shortest lifetime.  It counts from now on for answers that are stored already;
-- NULL means for ever.  Whoever asks after that is charged for a new answer.
-- Callers: the relation's owner, if a member of dp_owner.
-- Security definer on purpose: writes the catalogue.
create or replace function dp.set_answer_lifetime(relation regclass, lifetime interval)
returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    root_id constant integer := dp.owned_root('dp.set_answer_lifetime', relation);
begin
    if lifetime <= '0' then
        raise exception using
            errcode = 'PD040',
            message = 'parameter "lifetime" of dp.set_answer_lifetime must be greater than 0',
            detail = format('Got %s.', lifetime),
            hint = 'NULL keeps answers for ever; SET dp.fresh = on asks for a new one.';
    end if;
    update dp.root as r set answer_lifetime = lifetime where r.id = root_id;
    perform dp.touch_catalogue(declarations => false);
end
$$;
comment on function dp.set_answer_lifetime(regclass, interval) is
    'how long answers over a relation are repeated for nothing';
