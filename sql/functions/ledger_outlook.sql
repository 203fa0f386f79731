-- What dp.ledger_open would say to a question now, without locking, charging or remembering anything;
-- the account is the asking role's, before the charge.  "charged" also stands for questions whose
-- answer is stored for other roles or is being computed, or questions that wait for others of the role.  "covers" and
-- "payload" are as in dp.ledger_open.  Only dp_ledger and service sessions may call it.
create or replace function dp.ledger_outlook(
    role_oid oid,
    roots integer[],
    epsilon numeric,
    delta numeric,
    rho numeric,
    rho_delta numeric,
    key bytea,
    fresh boolean,
    covers jsonb default null,
    out status text,
    out payload text,
    out composition text,
    out budget_loss numeric,
    out budget_delta numeric,
    out spent_loss numeric,
    out spent_delta numeric,
    out root integer,
    out budget_window interval,
    out window_end timestamptz)
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    me integer;
    cost_rho numeric := coalesce(ledger_outlook.rho, dp.zcdp_price(ledger_outlook.epsilon));
    cost_rho_delta numeric := case when ledger_outlook.rho is null then ledger_outlook.delta
                                   else coalesce(ledger_outlook.rho_delta, ledger_outlook.delta) end;
begin
    if not dp.ledger_in_place() then
        status := 'restored';
        return;
    end if;
    select p.id into me from dp.principal as p where p.role_oid = ledger_outlook.role_oid;
    select a.composition, a.loss_limit, a.delta_limit, a.loss_spent, a.delta_spent, a.budget_window, a.window_end
      into composition, budget_loss, budget_delta, spent_loss, spent_delta, budget_window, window_end
      from dp.ledger_account(me, clock_timestamp()) as a;
    if composition is null then
        status := 'no_budget';
        return;
    end if;
    if exists (select from unnest(ledger_outlook.roots) as u(r)
                where not exists (select from dp.root as known where known.id = u.r)) then
        status := 'unknown_root';
        return;
    end if;
    select u.root, concat_ws(chr(10), u.told, u.mend) into root, payload
      from dp.uncovered(coalesce(ledger_outlook.covers, '[]')) as u;
    if root is not null then
        status := 'other_notion';
        return;
    end if;
    payload := null;
    if not fresh then
        if (dp.ledger_paid_answer(ledger_outlook.key, me)).spend is not null then
            status := 'hit';
            return;
        end if;
    end if;
    if (case composition when 'zcdp' then cost_rho else ledger_outlook.epsilon end) + spent_loss > budget_loss
       or (case composition when 'zcdp' then cost_rho_delta else ledger_outlook.delta end) + spent_delta > budget_delta then
        status := 'exceeded_role';
        return;
    end if;
    root := dp.ledger_exceeded_root(ledger_outlook.roots, ledger_outlook.epsilon, ledger_outlook.delta,
                                    cost_rho, cost_rho_delta);
    if root is not null then
        status := 'exceeded_root';
        return;
    end if;
    select s.status, s.root into status, root from dp.ledger_stopped(me, ledger_outlook.roots) as s;
    if status is null or status = 'crowded' then
        status := 'charged';
    end if;
end
$$;
comment on function dp.ledger_outlook(oid, integer[], numeric, numeric, numeric, numeric, bytea, boolean, jsonb) is
    'internal: what asking a question now would cost or meet';

alter function dp.ledger_outlook(oid, integer[], numeric, numeric, numeric, numeric, bytea, boolean, jsonb) owner to dp_ledger;
