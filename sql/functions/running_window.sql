-- The window in which a charge falls, and what counts in it beside the charge:
--   all    whatever the role ever spent: the first window of a role whose budget was for ever
--   none   nothing: a window begins
--   known  what was spent in the window in which the role was charged last, which still runs
--
-- A window that runs goes on until a window of the present definition begins at or after its end,
-- whatever was granted, revoked or changed meanwhile, and also where the clock goes back: budget is
-- given back by the end of a window only (PRIVACY.md section 7).
create or replace function dp.running_window(
    anchor timestamptz,
    length interval,
    known_start timestamptz,
    known_end timestamptz,
    moment timestamptz,
    out starts timestamptz,
    out ends timestamptz,
    out counted text)
language plpgsql immutable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    last_start timestamptz;
begin
    if anchor is null or length is null then
        return;
    end if;
    select p.starts, p.ends into starts, ends from dp.window_period(anchor, length, moment) as p;
    if known_end is null then
        counted := case when starts = anchor then 'all' else 'none' end;
        starts := case counted when 'all' then '-infinity' else starts end;
    elsif known_end <= starts and known_end <= moment then
        counted := 'none';
    else
        counted := 'known';
        starts := known_start;
        select p.starts, p.ends into last_start, ends
          from dp.window_period(anchor, length, known_end) as p;
        if last_start >= known_end then
            ends := last_start;
        end if;
    end if;
end
$$;
comment on function dp.running_window(timestamptz, interval, timestamptz, timestamptz, timestamptz) is
    'internal: the window that a charge falls into, and what counts in it';
