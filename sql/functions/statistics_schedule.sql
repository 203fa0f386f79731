-- Internal: refuses what is not a cron text of five fields (minute, hour, day, month, weekday).
create or replace function dp.require_cron_text(schedule text)
returns void
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    lows constant integer[] := array[0, 0, 1, 1, 0];
    highs constant integer[] := array[59, 23, 31, 12, 7];
    names constant text[] := array['minute', 'hour', 'day of the month', 'month', 'day of the week'];
    fields text[] := regexp_split_to_array(btrim(schedule), '\s+');
    part text;
    bounds text[];
    problem text;
begin
    if schedule is null then
        raise exception using errcode = 'PD040', message = 'parameter "schedule" must not be null';
    end if;
    if cardinality(fields) <> 5 then
        problem := 'It must have five fields.';
    else
        for i in 1 .. 5 loop
            foreach part in array string_to_array(fields[i], ',') loop
                bounds := regexp_match(part, '^(?:\*|([0-9]{1,2})(?:-([0-9]{1,2}))?)(?:/([0-9]{1,2}))?$');
                if bounds is null
                   or bounds[1]::integer not between lows[i] and highs[i]
                   or bounds[2]::integer not between bounds[1]::integer and highs[i]
                   or bounds[3]::integer < 1
                   or bounds[3] is not null and bounds[1] is not null and bounds[2] is null then
                    problem := coalesce(problem, format('Field %s (%s) is %L; numbers from %s to %s may be there.',
                                                        i, names[i], fields[i], lows[i], highs[i]));
                end if;
            end loop;
        end loop;
    end if;
    if problem is not null then
        raise exception using
            errcode = 'PD040',
            message = format('%L is not a schedule', schedule),
            detail = problem,
            hint = 'Write minute, hour, day, month and weekday, as in ''*/15 * * * *'' for every quarter of an hour.';
    end if;
end
$$;
comment on function dp.require_cron_text(text) is 'internal: raises an error unless the text is a schedule';

-- Internal: refuses where pg_cron cannot be used from this database.
create or replace function dp.require_cron()
returns void
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    if not exists (select from pg_extension as e where e.extname = 'pg_cron') then
        raise exception using
            errcode = 'PD040',
            message = 'the extension pg_cron is not installed in this database',
            detail = 'Schedules are its jobs; it can be in one database of the server, that of cron.database_name.',
            hint = 'Install pg_cron, put it into shared_preload_libraries, set cron.database_name, restart, CREATE EXTENSION pg_cron;'
                   ' or let any other clock run SELECT dp.refresh_statistics(''<relation>'').';
    end if;
    if not has_schema_privilege('cron', 'usage') then
        raise exception using
            errcode = 'PD070',
            message = 'permission denied for pg_cron',
            hint = format('Ask a superuser for GRANT USAGE ON SCHEMA cron TO %I.', current_user);
    end if;
end
$$;
comment on function dp.require_cron() is 'internal: raises an error where pg_cron cannot be used';

-- Has pg_cron refresh the statistics of a relation, as a job of the caller, who must be allowed to
-- refresh them himself.  By the clock only: never by the amount of change (PRIVACY.md section 4).
create or replace function dp.schedule_refresh(relation regclass, schedule text)
returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    perform dp.check_refresh(relation);
    perform dp.require_cron_text(schedule);
    perform dp.require_cron();
    if not (select r.rolcanlogin from pg_roles as r where r.rolname = current_user) then
        raise exception using
            errcode = 'PD040',
            message = format('role %I cannot log in, so pg_cron could not refresh as it', current_user),
            hint = 'Schedule as a role that may log in and is a member of this one and of dp_owner.';
    end if;
    -- pg_cron knows no other white space than blanks and tabs
    execute 'select cron.schedule($1, $2, $3)'
      using format('dpsql refresh %s', relation::oid), regexp_replace(btrim(schedule), '\s+', ' ', 'g'),
            format('select dp.refresh_statistics(%s::oid::regclass)', relation::oid);
end
$$;
comment on function dp.schedule_refresh(regclass, text) is
    'have pg_cron refresh the statistics of a relation, as in ''*/15 * * * *''';

-- Takes the caller's schedule back.
create or replace function dp.unschedule_refresh(relation regclass)
returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    job text := format('dpsql refresh %s', relation::oid);
    known boolean;
begin
    perform dp.require_cron();
    execute 'select exists (select from cron.job where jobname = $1 and username = current_user)'
       into known using job;
    if not known then
        raise exception using
            errcode = 'PD040',
            message = format('you have no schedule for relation %s', relation),
            hint = 'SELECT * FROM cron.job shows all of yours.';
    end if;
    execute 'select cron.unschedule($1)' using job;
end
$$;
comment on function dp.unschedule_refresh(regclass) is 'take back dp.schedule_refresh';

-- Internal: refuses callers who may not refresh this relation.  Security definer on purpose: reads
-- declarations.
create or replace function dp.check_refresh(relation regclass)
returns void
language plpgsql stable parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    perform dp.require_statistics(relation);
end
$$;
comment on function dp.check_refresh(regclass) is 'internal: whether the caller may refresh statistics';
