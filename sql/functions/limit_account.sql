-- Internal, trigger: what an account with composition "zcdp" may hold.  Half of its delta is kept
-- for the conversion, so that rho_limit and the other half are limits that can be checked one by
-- one, which makes the filter valid for adaptively chosen prices (docs/proofs/composition.md).
create or replace function dp.limit_account()
returns trigger
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    epsilon numeric;
    delta numeric;
begin
    new.rho_limit := null;
    new.delta_reserved := 0;
    if new.composition = 'basic' then
        return new;
    end if;
    if tg_table_name = 'root' then
        epsilon := new.epsilon_cap;
        delta := new.delta_cap;
    else
        epsilon := new.epsilon;
        delta := new.delta;
    end if;
    if coalesce(delta, 0) < 1e-100 then
        raise exception using
            errcode = 'PD040',
            message = 'composition "zcdp" needs a delta of at least 1e-100',
            detail = 'Half of the account''s delta pays for the conversion of rho into epsilon.',
            hint = 'Give a delta such as 1e-6, or use composition => ''basic''.';
    end if;
    new.delta_reserved := delta * 0.5;
    new.rho_limit := dp.zcdp_rho(epsilon, new.delta_reserved);
    if new.rho_limit = 0 then
        raise exception using
            errcode = 'PD040',
            message = 'epsilon is too small for composition "zcdp"',
            detail = format('No rho above 0 implies epsilon = %s at delta = %s.', epsilon, new.delta_reserved),
            hint = 'Give more epsilon or delta, or use composition => ''basic''.';
    end if;
    return new;
end
$$;
comment on function dp.limit_account() is 'internal: limits of an account under zCDP composition';

create or replace trigger limit_account
before insert or update on dp.role_budget
for each row execute function dp.limit_account();

create or replace trigger limit_account
before insert or update on dp.root
for each row execute function dp.limit_account();
