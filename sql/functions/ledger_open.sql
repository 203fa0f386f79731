-- Looks a question up and, if it must be computed, charges it: one statement, one durable commit,
-- before any private row is read (PRIVACY.md section 7).  Only dp_ledger and service sessions may call it.
--
-- "status" tells what happened:
--   hit            the stored answer; the role had paid for it before
--   shown          the stored answer; the role paid for it now
--   charged        the caller must compute, then call ledger_finish or ledger_fail
--   pending        somebody else computes this answer; ask again
--   crowded        the role has failures, and its open questions could reach the limit; ask again
--   restored, no_budget, unknown_root, other_notion, exceeded_role, exceeded_root, stopped, stopped_all
--                  refused, nothing spent
--
-- Amounts are exact.  Every spend has two prices, (epsilon, delta) and (rho, rho_delta), and all
-- four are summed for every account; which of the two sums is limited is the account's composition
-- (docs/proofs/composition.md).  A NULL rho is a mechanism of which only epsilon and delta are
-- known.  "loss" is epsilon or rho, whichever the role's account limits; where the budget has windows
-- limits and sums are those of the window that runs when the locks are held, and the charge belongs to
-- it whenever it is answered.  Locks are taken in one
-- order everywhere: the role's total, the roots' totals by number, the answer.  Only dp_ledger can
-- lock these rows, and only for the length of this statement.  The calling backend computes the answer: the
-- others wait as long as it is there.
--
-- "covers" says which accounts pay for which relations' rows, and how (dp.coverage): it is written down with the charge,
-- and refused where an account that shows losses of the rows would not pay; "payload" then says which and what to do.
--
-- A role's "fresh" answer is stored for itself alone where another role has paid for the one that is stored, or another
-- session computes it: what a role has paid for stays free, whatever others ask.  "dp.ledger_own_key" is the key of such
-- an answer.  dp.ledger_finish looks again, for another role may pay while the fresh one is computed.
--
-- "objects" and "token" say what the answer hangs on, for dp.ledger_purge.  "shared" is the spend of a measurement that
-- the role is shown because an owner says so, whether or not the ledger still stores it: nothing is computed, and a role
-- that has paid for it in any way pays nothing more.
create or replace function dp.ledger_open(
    role_oid oid,
    roots integer[],
    epsilon numeric,
    delta numeric,
    rho numeric,
    rho_delta numeric,
    key bytea,
    text_key bytea,
    mechanism text,
    method text,
    label text,
    question text,
    fresh boolean,
    holder_start timestamptz,
    objects oid[] default null,
    token bytea default null,
    shared bigint default null,
    covers jsonb default null,
    out status text,
    out spend_id bigint,
    out payload text,
    out taken_at timestamptz,
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
    my_name name;
    found_answer dp.answer;
    cost_epsilon numeric := ledger_open.epsilon;
    cost_delta numeric := ledger_open.delta;
    cost_rho numeric := coalesce(ledger_open.rho, dp.zcdp_price(ledger_open.epsilon));
    cost_rho_delta numeric := case when ledger_open.rho is null then ledger_open.delta
                                   else coalesce(ledger_open.rho_delta, ledger_open.delta) end;
    charged_roots integer[] := array(select distinct r from unnest(ledger_open.roots) as r order by r);
    stored boolean := false;
    account record;
    asked_key constant bytea := key;
begin
    if not dp.ledger_in_place() then
        status := 'restored';
        return;
    end if;
    select p.id, r.rolname into me, my_name
      from dp.principal as p
      join dp.role_budget as b on b.principal = p.id
      join pg_catalog.pg_roles as r on r.oid = p.role_oid
     where p.role_oid = ledger_open.role_oid;
    if not found then
        status := 'no_budget';
        return;
    end if;
    select u.r into root
      from unnest(charged_roots) as u(r)
     where not exists (select from dp.root as known where known.id = u.r)
     limit 1;
    if found then
        status := 'unknown_root';
        return;
    end if;
    select u.root, concat_ws(chr(10), u.told, u.mend) into root, payload
      from dp.uncovered(coalesce(ledger_open.covers, '[]')) as u;
    if root is not null then
        status := 'other_notion';
        return;
    end if;
    payload := null;

    -- Without a lock first: a repeated question and a waiting one write nothing.
    if shared is not null then
        taken_at := coalesce((select s.at from dp.spend as s where s.id = shared), clock_timestamp());
        payload := '';
        if exists (select from dp.spend as s where s.source = shared and s.principal = me) then
            status := 'hit';
            spend_id := shared;
            return;
        end if;
    elsif not fresh then
        found_answer := dp.ledger_paid_answer(key, me);
        if found_answer.spend is not null then
            status := 'hit';
            spend_id := found_answer.spend;
            payload := found_answer.payload;
            taken_at := found_answer.taken_at;
            perform dp.ledger_remember_text(ledger_open.text_key, asked_key);
            return;
        end if;
        select a.* into found_answer from dp.answer as a where a.key = ledger_open.key;
        if found and not dp.ledger_answer_valid(found_answer) and dp.ledger_answer_awaited(found_answer) then
            status := 'pending';
            return;
        end if;
    end if;

    insert into dp.role_total (principal) values (me)
    on conflict on constraint role_total_pkey do nothing;
    perform from dp.role_total as t where t.principal = me for update;
    insert into dp.root_total (root)
    select r from unnest(charged_roots) as r order by r
    on conflict on constraint root_total_pkey do nothing;
    perform from dp.root_total as t where t.root = any (charged_roots) order by t.root for update;
    if shared is null then
        insert into dp.answer (key) values (ledger_open.key) on conflict on constraint answer_pkey do nothing;
        select a.* into found_answer from dp.answer as a where a.key = ledger_open.key for update;
        if fresh and (dp.ledger_answer_awaited(found_answer) or dp.ledger_others_paid(found_answer, me)) then
            key := dp.ledger_own_key(asked_key, me);
            insert into dp.answer (key) values (ledger_open.key) on conflict on constraint answer_pkey do nothing;
            select a.* into found_answer from dp.answer as a where a.key = ledger_open.key for update;
        end if;
    end if;

    -- Again, because the budget may have been lowered while this waited for the locks.
    select a.* into account from dp.ledger_account(me, clock_timestamp()) as a;
    if account.composition is null then
        status := 'no_budget';
        return;
    end if;
    composition := account.composition;
    budget_loss := account.loss_limit;
    budget_delta := account.delta_limit;
    spent_loss := account.loss_spent;
    spent_delta := account.delta_spent;
    budget_window := account.budget_window;
    window_end := account.window_end;

    if shared is not null then
        if exists (select from dp.spend as s where s.source = shared and s.principal = me) then
            status := 'hit';
            spend_id := shared;
            return;
        end if;
        stored := true;
        charged_roots := '{}';
        found_answer.spend := shared;
    elsif not fresh then
        if dp.ledger_answer_valid(found_answer) then
            if exists (select from dp.spend as s
                        where s.source = found_answer.spend and s.principal = me) then
                status := 'hit';
                spend_id := found_answer.spend;
                payload := found_answer.payload;
                taken_at := found_answer.taken_at;
                perform dp.ledger_remember_text(ledger_open.text_key, asked_key);
                return;
            end if;
            -- New to this role: it pays, the roots do not.
            stored := true;
            charged_roots := '{}';
            select s.epsilon, s.delta, s.rho, s.rho_delta
              into cost_epsilon, cost_delta, cost_rho, cost_rho_delta
              from dp.spend as s
             where s.id = found_answer.spend;
        elsif dp.ledger_answer_awaited(found_answer) then
            status := 'pending';
            return;
        end if;
    end if;

    if (case composition when 'zcdp' then cost_rho else cost_epsilon end) + spent_loss > budget_loss
       or (case composition when 'zcdp' then cost_rho_delta else cost_delta end) + spent_delta > budget_delta then
        status := 'exceeded_role';
    else
        root := dp.ledger_exceeded_root(charged_roots, cost_epsilon, cost_delta, cost_rho, cost_rho_delta);
        status := case when root is not null then 'exceeded_root' end;
    end if;
    -- Checked again, because another account may have been charged for the same rows meanwhile.  The lock admits one
    -- writer of new records at a time; it is taken last and waits for no transaction of an owner.
    if status is null and not stored and dp.covers_more(coalesce(ledger_open.covers, '[]')) then
        lock table dp.covered in share update exclusive mode;
        select u.root, concat_ws(chr(10), u.told, u.mend) into root, payload
          from dp.uncovered(ledger_open.covers) as u;
        status := case when root is not null then 'other_notion' end;
        payload := case when root is not null then payload end;
    end if;
    -- A session that charges has abandoned what it charged before: a failure, which everybody is shown.
    update dp.failure as f set failed_at = clock_timestamp()
     where f.principal = me and f.holder_pid = pg_backend_pid() and f.holder_start = ledger_open.holder_start
       and f.failed_at is null;
    -- Returning a stored answer reads no rows, so it cannot fail.
    if status is null and not stored then
        select s.status, s.root into status, root from dp.ledger_stopped(me, charged_roots) as s;
    end if;
    if status is not null then
        delete from dp.answer as a
         where a.key = ledger_open.key and a.spend is null and a.pending_spend is null;
        return;
    end if;

    spend_id := nextval('dp.spend_id_seq');
    insert into dp.spend (id, principal, role_name, epsilon, delta, rho, rho_delta, mechanism,
                          method, label, question, key, roots, source, state)
    overriding system value
    values (spend_id, me, my_name, cost_epsilon, cost_delta, cost_rho,
            cost_rho_delta, ledger_open.mechanism, ledger_open.method, ledger_open.label, ledger_open.question,
            ledger_open.key, charged_roots,
            case when stored then found_answer.spend else spend_id end,
            case when stored then 'answered' else 'charged' end);
    update dp.role_total as t
       set epsilon = t.epsilon + cost_epsilon, delta = t.delta + cost_delta,
           rho = t.rho + cost_rho, rho_delta = t.rho_delta + cost_rho_delta, spends = t.spends + 1,
           window_start = account.window_start, window_end = account.window_end,
           window_epsilon = account.epsilon + cost_epsilon, window_delta = account.delta + cost_delta,
           window_rho = account.rho + cost_rho, window_rho_delta = account.rho_delta + cost_rho_delta,
           window_spends = account.spends + 1
     where t.principal = me;
    update dp.root_total as t
       set epsilon = t.epsilon + cost_epsilon, delta = t.delta + cost_delta,
           rho = t.rho + cost_rho, rho_delta = t.rho_delta + cost_rho_delta, spends = t.spends + 1
     where t.root = any (charged_roots);
    if shared is not null then
        status := 'shown';
        spend_id := shared;
        return;
    end if;
    perform dp.ledger_cover(case when stored then '[]' else coalesce(ledger_open.covers, '[]') end);
    perform dp.ledger_remember_text(ledger_open.text_key, asked_key);
    if stored then
        status := 'shown';
        spend_id := found_answer.spend;
        payload := found_answer.payload;
        taken_at := found_answer.taken_at;
        return;
    end if;

    -- The charge counts as a failure until it is answered, so that the end of a backend or server needs no write.
    insert into dp.failure (spend, principal, roots, holder_pid, holder_start)
    values (spend_id, me, charged_roots, pg_backend_pid(), ledger_open.holder_start);

    -- Whoever held this question before is gone, or is overtaken by a fresh one: its spend stays.
    update dp.spend as s set state = 'failed'
     where s.id = found_answer.pending_spend and s.state = 'charged'
       and not dp.ledger_answer_awaited(found_answer);
    update dp.answer as a
       set pending_spend = ledger_open.spend_id,
           objects = ledger_open.objects,
           token = ledger_open.token,
           holder_pid = pg_backend_pid(),
           holder_start = ledger_open.holder_start
     where a.key = ledger_open.key;
    status := 'charged';
end
$$;
comment on function dp.ledger_open(
    oid, integer[], numeric, numeric, numeric, numeric, bytea, bytea, text, text, text, text,
    boolean, timestamptz, oid[], bytea, bigint, jsonb) is
    'internal: looks up or charges one question';

alter function dp.ledger_open(oid, integer[], numeric, numeric, numeric, numeric, bytea, bytea, text, text, text, text,
    boolean, timestamptz, oid[], bytea, bigint, jsonb) owner to dp_ledger;
