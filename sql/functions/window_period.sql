-- The window that holds a moment: windows follow each other without gap from the anchor on, the n-th
-- from anchor + n * length, by the calendar in UTC.  So "1 month" from the 31st of January begins on
-- the 28th or 29th of February, the 31st of March, the 30th of April.  A moment before the anchor is
-- in the first window.  Lengths without negative parts only (dp.require_window), so that later
-- windows begin later.
create or replace function dp.window_period(
    anchor timestamptz,
    length interval,
    moment timestamptz,
    out starts timestamptz,
    out ends timestamptz)
language plpgsql immutable parallel safe security invoker strict
set search_path = pg_catalog, pg_temp
as $$
declare
    origin timestamp := anchor at time zone 'UTC';
    here timestamp := moment at time zone 'UTC';
    n integer := 0;
begin
    if here > origin then
        -- nearly right: months and years differ in length
        n := floor(extract(epoch from here - origin) / extract(epoch from length));
        while origin + n * length > here loop
            n := n - 1;
        end loop;
        while origin + (n + 1) * length <= here loop
            n := n + 1;
        end loop;
    end if;
    starts := (origin + n * length) at time zone 'UTC';
    ends := (origin + (n + 1) * length) at time zone 'UTC';
end
$$;
comment on function dp.window_period(timestamptz, interval, timestamptz) is
    'internal: the window of a budget that holds a moment';
