-- The only file with GRANT and REVOKE.  Runs last in the install script and in every update.
-- Nothing is granted to anybody unless a line here says so.

revoke all on schema dp, dpv from public;
revoke all on all tables in schema dp from public, dp_owner, dp_analyst, dp_executor;
revoke all on all sequences in schema dp from public, dp_owner, dp_analyst, dp_executor;
revoke all on schema dpv from dp_executor;
revoke all on all routines in schema dp from public, dp_owner, dp_analyst, dp_executor, dp_ledger;

-- Names resolve for everyone, so that refusals say what is missing.
grant usage on schema dp to public;
grant usage on schema dpv to dp_analyst, dp_owner;

-- Views show each role its own part.  The functions that they call run as the reader.
grant select on dp.relations, dp.domains, dp.budgets, dp.ledger, dp.refusals, dp.failures to dp_analyst, dp_owner;
grant execute on function dp.refused_statements(), dp.refusals_since(), dp.burn(interval) to dp_analyst, dp_owner;
-- Whoever has no budget sees that, in a view without rows.
grant select on dp.budgets to public;
-- The catalogue of PostgreSQL has all of this, too.
grant select on dp.functions to public;
grant execute on function
    dp.caller(),
    dp.caller_administers(),
    dp.shown_amount(numeric),
    dp.shown_cost(numeric),
    dp.zcdp_epsilon(numeric, numeric),
    dp.zcdp_offset(numeric, numeric),
    dp.running_window(timestamptz, interval, timestamptz, timestamptz, timestamptz),
    dp.window_period(timestamptz, interval, timestamptz)
to public;
grant select on dp.ledger_status, dp.links to dp_owner;
grant execute on function dp.ledger_standing_tokens(oid[]) to dp_owner;
grant execute on function dp.ledger_failed(dp.failure) to dp_analyst, dp_owner;
grant execute on function
    dp.own_problem(oid),
    dp.relation_problem(oid),
    dp.statistics_members(oid),
    dp.parts_of(oid),
    dp.part_levels(oid),
    dp.parts_to_read(oid),
    dp.has_shared_part(oid),
    dp.declarations(),
    dp.unit_paths(oid),
    dp.standing(oid),
    dp.kept_by_citus(oid), dp.citus_problem(oid), dp.citus_unit_problem(oid, text, json),
    dp.foreign_code(oid)
to dp_analyst, dp_owner, dp_executor, dp_ledger;
grant execute on function
    dp.reading_problem(oid), dp.shards_problem(oid), dp.far_parents_problem(oid), dp.trusted_keys(oid), dp.never_null(oid, int2),
    dp.derived_columns(oid)
to dp_analyst, dp_owner, dp_executor;
grant execute on function
    dp.shown_way(oid, jsonb, name, oid, name),
    dp.asking_problem(oid),
    dp.way_problem(oid, json),
    dp.primary_key(oid),
    dp.key_mend(oid, name[]),
    dp.unlike_columns(oid, name[], oid, name[]),
    dp.filling(name[]),
    dp.shown_names(name[])
to dp_analyst, dp_owner;
grant execute on function dp.zcdp_rho(numeric, numeric) to dp_analyst, dp_owner;

-- Administration.
grant execute on function
    dp.protect(regclass, text, numeric, numeric),
    dp.unprotect(regclass),
    dp.link(regclass, regclass, name[], name[], text, boolean),
    dp.unlink(regclass, regclass, name[]),
    dp.set_degree_bound(regclass, name[], integer),
    dp.drop_degree_bound(regclass, name[]),
    dp.remember_numbered(regclass, name),
    dp.require_boundable(regclass, name[]),
    dp.is_numbered(regclass, name[]),
    dp.slot_name(name[]),
    dp.shown_columns(name[], text),
    dp.declare_public(regclass),
    dp.undeclare_public(regclass),
    dp.declare_shards(regclass, text),
    dp.declare_view(regclass),
    dp.undeclare_view(regclass),
    dp.set_domain(regclass, name, anycompatiblearray, boolean, anycompatible),
    dp.set_domain_values(regclass, name, text[], boolean, text),
    dp.set_domain(regclass, name, text, text, text, boolean),
    dp.set_domain(regclass, name, numeric, numeric, numeric, boolean),
    dp.set_domain(regclass, name, date, date, interval, boolean),
    dp.set_domain(regclass, name, timestamptz, timestamptz, interval, boolean),
    dp.set_domain(regclass, name, regclass, name, boolean),
    dp.drop_domain(regclass, name),
    dp.set_root_cap(regclass, numeric, numeric, text),
    dp.grant_budget(regrole, numeric, numeric, text, interval),
    dp.revoke_budget(regrole),
    dp.record_loss(regrole, regclass, numeric, numeric, text, numeric),
    dp.set_answer_lifetime(regclass, interval),
    dp.set_failure_limit(regclass, integer, integer),
    dp.resume(regrole, regclass),
    dp.allow_heuristic(regclass, boolean),
    dp.purge_answers(),
    dp.acknowledge_restore(text),
    dp.check_lockdown(regrole[]),
    dp.lockdown(regclass[]),
    dp.unlock()
to dp_owner;

-- Whoever answers questions reads the declarations; base relations are granted by dp.protect.
grant select on dp.policy, dp.root, dp.unit_link, dp.column_domain, dp.shards to dp_executor;
grant execute on function dp.domain_type_oid(regclass, name) to dp_executor;
grant execute on function dp.plain_type(oid, integer), dp.plain_oid(oid) to dp_analyst, dp_owner, dp_executor;
grant execute on function dp.domain_members(regclass, name) to dp_analyst, dp_owner, dp_executor;
grant execute on function dp.ledger_in_place() to dp_owner, dp_executor;

-- The ledger's tables and functions belong to dp_ledger, the declarations it only reads.
grant select on dp.principal, dp.role_budget, dp.root, dp.loss, dp.resumption, dp.ledger_identity, dp.ledger_incarnation to dp_ledger;
grant execute on function
    dp.ledger_place(),
    dp.ledger_in_place(),
    dp.ledger_answer_valid(dp.answer),
    dp.ledger_answer_awaited(dp.answer),
    dp.ledger_remember_text(bytea, bytea),
    dp.ledger_others_paid(dp.answer, integer),
    dp.ledger_own_key(bytea, integer),
    dp.ledger_paid_answer(bytea, integer),
    dp.ledger_room(),
    dp.ledger_make_room(integer),
    dp.ledger_delete_answers(bytea[]),
    dp.ledger_peek(oid, bytea),
    dp.ledger_open(oid, integer[], numeric, numeric, numeric, numeric, bytea, bytea, text, text,
                   text, text, boolean, timestamptz, oid[], bytea, bigint, jsonb),
    dp.uncovered(jsonb),
    dp.ways_lapsed(oid, text, text),
    dp.covers_more(jsonb),
    dp.ledger_cover(jsonb),
    dp.ledger_account(integer, timestamptz),
    dp.ledger_exceeded_root(integer[], numeric, numeric, numeric, numeric),
    dp.ledger_exhausted(integer),
    dp.ledger_outlook(oid, integer[], numeric, numeric, numeric, numeric, bytea, boolean, jsonb),
    dp.ledger_finish(bigint, text),
    dp.ledger_purge(bytea),
    dp.ledger_standing_tokens(oid[]),
    dp.zcdp_price(numeric),
    dp.ledger_fail(bigint, boolean),
    dp.ledger_take_from_failures(bigint),
    dp.ledger_end(bigint, text),
    dp.ledger_stopped(integer, integer[]),
    dp.ledger_failed(dp.failure)
to dp_ledger;

-- The service session.
grant execute on function
    dp.ledger_peek(oid, bytea),
    dp.ledger_open(oid, integer[], numeric, numeric, numeric, numeric, bytea, bytea, text, text,
                   text, text, boolean, timestamptz, oid[], bytea, bigint, jsonb),
    dp.ledger_outlook(oid, integer[], numeric, numeric, numeric, numeric, bytea, boolean, jsonb),
    dp.ledger_finish(bigint, text),
    dp.ledger_fail(bigint, boolean),
    dp.ledger_exhausted(integer),
    dp.ledger_take_from_failures(bigint),
    dp.ledger_end(bigint, text),
    dp.ledger_purge(bytea),
    dp.serve_phase(boolean),
    dp.end_service(),
    dp.ask_service(text, text, text)
to dp_executor;
grant execute on procedure
    dp.serve(text[], text, text, text[], text, oid, integer, boolean, oid, text, text),
    dp.python_serve(text[], text, text, text[], text, oid, integer, boolean, oid, text, text)
to dp_executor;

-- Asking questions.  dp.run and its like check role and budget themselves.
grant execute on function
    dp.run(text, text[]),
    dp.run_json(text, double precision, text),
    dp.explain_query(text, text),
    dp.estimate_query(text, text),
    dp.sensitivity_of(text, text, double precision, boolean, text),
    dp.query(text, double precision),
    dp.suggest_bounds(regclass, name, numeric, numeric),
    dp.bound_cuts(text), dp.bound_inclusive(int, int), dp.bound_of_bin(record, int, boolean),
    dp.bound_bins(text, text, record, int, int), dp.bound_text(text, numeric), dp.bound_source(oid),
    dp.bound_may_be_zero(record, int, int), dp.warn_of_outside(text, text, text, boolean, numeric, numeric),
    dp.explain(text, text[]),
    dp.estimate(text, text[]),
    dp.sensitivity(text, text, double precision, boolean),
    dp.deparse(text),
    dp.deparse(text, text[]),
    dp.parameters("any")
to dp_analyst, dp_owner;

-- Releases: they check role and budget themselves, as dp.run does.
grant select on dp.releases, dp.progress to dp_analyst, dp_owner;
grant execute on function dp.running_commands() to dp_analyst, dp_owner;
grant execute on function
    dp.release(text, text, numeric, numeric, text, text, double precision[]),
    dp.release_query(text, text, text, text, text, text, double precision[], text),
    dp.plan_release(text, numeric, numeric, text, double precision[], text),
    dp.plan_release_query(text, text, text, text, double precision[], text, text),
    dp.refresh_release(text),
    dp.refresh_release_query(text),
    dp.own_release(text),
    dp.caller_made(oid, name, uuid),
    dp.caller_owns(oid[], text[], uuid),
    dp.drop_release(text),
    dp.share_release(text, regrole),
    dp.unshare_release(text, regrole),
    dp.release_name(text),
    dp.share_release_with(text, oid),
    dp.prefix(anyelement), dp.all_ranges(anyelement), dp.ranges(anyelement, integer)
to dp_analyst, dp_owner;
grant create, usage on schema dpv to dp_executor;
grant select, insert, delete on dp.stored_release to dp_executor;
grant select on dp.stored_release to dp_ledger;
grant select on dp.ledger_incarnation to dp_executor;
grant execute on function
    dp.python_measure_release(),
    dp.write_cells(oid, integer, integer, bytea, bytea, double precision, integer[], integer[], integer[],
                   text[]),
    dp.zcdp_rho(numeric, numeric),
    dp.zcdp_offset(numeric, numeric),
    dp.release_name(text),
    dp.release_readers(dp.stored_release),
    dp.own_release(text),
    dp.caller_made(oid, name, uuid),
    dp.caller_owns(oid[], text[], uuid),
    dp.remove_release(dp.stored_release),
    dp.lock_release(text, boolean),
    dp.hold_name(text),
    dp.drop_release(text)
to dp_executor;

-- Syntheses: written with the caller's rights; what these read and change is the caller's own.
grant select on dp.syntheses to dp_analyst, dp_owner;
grant execute on procedure
    dp.synthesize(text, regclass[], numeric, numeric, text, jsonb, jsonb, text[], integer, boolean, boolean)
to dp_analyst, dp_owner;
grant execute on function
    dp.synthesize_query(text, oid[], text, text, text, text, text, text[], integer, boolean, boolean),
    dp.may_commit(),
    dp.synthesis_step(bigint),
    dp.drop_synthesis(name),
    dp.synthesis_report(name, boolean),
    dp.read_as_owner(oid),
    dp.reported_synthesis(name),
    dp.own_synthesis(bigint),
    dp.synthesis_payload(bigint),
    dp.synthesis_tables(bigint),
    dp.synthesis_begun(bigint, jsonb, boolean, integer[], name[]),
    dp.synthesis_wrote(bigint, integer, bigint, bigint, bigint),
    dp.synthesis_moved(bigint, text, integer, text[]),
    dp.synthetic_tables(name),
    dp.forget_syntheses(name, bigint),
    dp.integers(bytea), dp.bigints(bytea), dp.floats(bytea),
    -- to say something to oneself, and to the server log, as RAISE does
    dp.note(text, text, text), dp.server_log(text)
to dp_analyst, dp_owner;
grant execute on procedure dp.write_synthesis(bigint), dp.require_commits() to dp_analyst, dp_owner;
grant execute on function
    dp.show_synthesis(name),
    dp.hide_synthesis(name),
    dp.refuse_rows(name)
to dp_analyst, dp_owner;
grant execute on function dp.show_synthetic(regclass, name), dp.hide_synthetic(regclass) to dp_owner;
grant execute on function dp.expose(regclass, name[], text, name[]), dp.unexpose(regclass) to dp_owner;
grant insert, select on dp.synthesis to dp_executor;
grant execute on function dp.synthetic_tables(name) to dp_executor;
-- CHECK constraints are tried on what a copy can hold
grant execute on function dp.integers(bytea), dp.bigints(bytea), dp.floats(bytea) to dp_executor;

-- What dp.run calls in the executor's name.
grant execute on function
    dp.analyze(text),
    dp.analyze(text, text[]),
    dp.analyze_view(oid),
    dp.analyze_own(text),
    dp.analyze_kept(integer),
    dp.server_log(text),
    dp.warn(text, text, text),
    dp.note(text, text, text),
    dp.show_phase(integer, integer, oid[], integer),
    dp.show_rounds(bigint, bigint, bigint, double precision, double precision, integer),
    dp.end_progress(),
    dp.lock_members(oid[], boolean),
    dp.hold_types(oid[]),
    dp.keep_dead_rows(oid[], oid[]),
    dp.lock_at_once(oid),
    dp.catalogue_version(),
    dp.meet_shards(oid[], oid[]),
    dp.meet_before_domain(oid),
    dp.read_together(),
    dp.python_read_together(),
    dp.failed_shard(oid[]),
    dp.shards_of(oid[]),
    dp.read_by_steps(oid[]),
    dp.citus_node_problem(),
    dp.foreign_parts(oid),
    dp.without_snapshot(oid),
    dp.spans_servers(oid),
    dp.linked_across(oid),
    dp.fingerprint(oid[]),
    dp.fingerprint_now(oid[]),
    dp.fingerprint_text(oid[]),
    dp.guards_others(pg_trigger, oid[]),
    dp.declared_text(oid[], integer[]),
    dp.pack(bigint, variadic "any"),
    dp.planned_rows(text),
    dp.steps(numeric, integer),
    dp.steps(numeric, bigint, bigint, integer),
    dp.draw(bytea, bigint, integer, bigint)
to dp_executor;

-- Sketches.  Counters are built and read as dp_executor; nobody at all reads a seed.
grant select, insert, delete on dp.sketch to dp_executor;
grant insert, select (sketch, family) on dp.sketch_family to dp_executor;
grant select, insert, update (fingerprint, measurement) on dp.sketch_counter to dp_executor;
grant select on dp.sketches to dp_owner;
grant execute on function dp.sketch_fingerprint(oid, text[]) to dp_executor;
grant execute on function dp.sketch_usable(bigint) to dp_owner;
grant execute on function dp.begin_measuring(oid[], text), dp.measure_sketch(oid, pg_snapshot, text),
    dp.compact_changes()
    to dp_executor;
grant execute on function
    dp.create_sketch(text, integer, integer),
    dp.create_sketch_of(text, integer, integer, text),
    dp.drop_sketch(bigint),
    dp.rotate_sketch_seeds()
to dp_owner;

-- Statistics.  Owners refresh and look; the executor, as which triggers count and questions are
-- answered, writes changes and reads all.  Nobody else sees any of it.
grant select on dp.statistics, dp.kept_questions, dp.progress to dp_owner;
grant execute on function
    dp.collect_statistics(regclass),
    dp.drop_statistics(regclass),
    dp.refresh_statistics(regclass),
    dp.keep_statistics(text),
    dp.keep_question(text, text),
    dp.unkeep_statistics(text),
    dp.unkeep_statistics(integer),
    dp.unkeep_question(text),
    dp.schedule_refresh(regclass, text),
    dp.unschedule_refresh(regclass),
    dp.check_refresh(regclass),
    dp.require_cron_text(text),
    dp.require_cron(),
    dp.owned_statistics(),
    dp.owned_questions()
to dp_owner;
grant insert on dp.change, dp.changed_key to dp_executor;
grant select on dp.change, dp.changed_key, dp.kept_query, dp.measurement, dp.measured_relation,
    dp.statistic to dp_executor;
grant execute on function
    dp.has_one_text(oid, integer, oid),
    dp.statistics_keyed(oid),
    dp.usable_shift(bigint, oid),
    dp.changed_here(oid[]),
    dp.coverage(oid[]),
    dp.statistics_problem(oid),
    dp.statistics_collected(oid),
    dp.statistics_fingerprint(oid),
    dp.statistics_shift(bigint, oid)
to dp_executor;
