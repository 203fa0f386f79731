"""All that the extension's objects are, as lines that two databases must have alike."""

from __future__ import annotations

from typing import Any

_ACL = '(select array_agg(a::text order by a::text collate "C") from unnest({0}) a)'

_RELATION_ACL = _ACL.format(
    """coalesce(c.relacl, acldefault(case c.relkind when 'S' then 's'::"char" else 'r'::"char" end, c.relowner))"""
)

# Minor releases of 17 keep a version of their own there, another one for each column that is made.
_OPTIONS = "(select array_agg(o order by o) from unnest(a.attoptions) o where not starts_with(o, 'pg_attver='))"

# Objects of the extension, but the views of dpv, which it makes for what a database protects.
_MEMBERS = """
with member as materialized (
    select d.classid, d.objid
      from pg_depend d join pg_extension e on e.oid = d.refobjid and e.extname = 'dpsql'
     where d.refclassid = 'pg_extension'::regclass and d.deptype = 'e'
       and not exists (select from pg_class c
                        where d.classid = 'pg_class'::regclass and c.oid = d.objid
                          and c.relnamespace = 'dpv'::regnamespace)
       and not exists (select from pg_type t
                        where d.classid = 'pg_type'::regclass and t.oid = d.objid
                          and t.typnamespace = 'dpv'::regnamespace)),
relation as materialized (
    select c.* from pg_class c join member m on m.classid = 'pg_class'::regclass and m.objid = c.oid
    union
    -- sequences of identity columns hang on their tables
    select s.* from pg_class s join pg_depend d on d.classid = 'pg_class'::regclass and d.objid = s.oid
           join member m on m.classid = d.refclassid and m.objid = d.refobjid
     where s.relkind = 'S')
"""
_PARTS = {
    "member": "select pg_describe_object(classid, objid, 0), null from member",
    "extension": """
        select 'extension', row(e.extversion, e.extowner::regrole, e.extnamespace::regnamespace, e.extrelocatable)::text
          from pg_extension e where extname = 'dpsql'""",
    "dumped": """
        select c.oid::regclass::text, e.extcondition[n.i]
          from pg_extension e, generate_subscripts(e.extconfig, 1) n(i), pg_class c
         where e.extname = 'dpsql' and c.oid = e.extconfig[n.i]""",
    "function": f"""
        select p.oid::regprocedure::text,
               row(case when p.prokind = 'a' then null else pg_get_functiondef(p.oid) end,
                   p.prokind, p.proowner::regrole, l.lanname, p.prosrc, p.probin, p.provolatile, p.prosecdef, p.proisstrict,
                   p.proleakproof, p.proparallel, p.procost, p.prorows, p.prosupport::regproc, p.proconfig,
                   p.proargnames, p.proargmodes, p.provariadic, p.prosqlbody is null,
                   a.aggkind, a.aggtransfn, a.aggfinalfn, a.aggcombinefn, a.aggtranstype::regtype, a.agginitval,
                   {_ACL.format("coalesce(p.proacl, acldefault('f', p.proowner))")})::text
          from pg_proc p join member m on m.classid = 'pg_proc'::regclass and m.objid = p.oid
          join pg_language l on l.oid = p.prolang left join pg_aggregate a on a.aggfnoid = p.oid""",
    "relation": f"""
        select c.oid::regclass::text,
               row(c.relkind, c.relowner::regrole, c.relpersistence, c.reloptions, c.relrowsecurity,
                   c.relforcerowsecurity, c.relreplident, {_RELATION_ACL},
                   case when c.relkind = 'v' then pg_get_viewdef(c.oid) end)::text
          from relation c""",
    "column": f"""
        select c.oid::regclass || '.' || a.attname,
               row(row_number() over (partition by c.oid order by a.attnum), format_type(a.atttypid, a.atttypmod),
                   a.attnotnull, a.attidentity, a.attgenerated, a.attcollation::regcollation, a.attstorage,
                   pg_get_expr(d.adbin, d.adrelid), {_OPTIONS}, a.attstattarget, {_ACL.format("a.attacl")})::text
          from relation c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
          left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum""",
    "constraint": """
        select c.oid::regclass || ': ' || k.conname, row(k.contype, k.convalidated, pg_get_constraintdef(k.oid))::text
          from relation c join pg_constraint k on k.conrelid = c.oid""",
    "index": """
        select i.indexrelid::regclass::text, row(pg_get_indexdef(i.indexrelid), i.indisvalid, i.indisprimary)::text
          from relation c join pg_index i on i.indrelid = c.oid""",
    "trigger": """
        select c.oid::regclass || ': ' || t.tgname, row(pg_get_triggerdef(t.oid), t.tgenabled)::text
          from relation c join pg_trigger t on t.tgrelid = c.oid where not t.tgisinternal""",
    "sequence": """
        select s.seqrelid::regclass::text, row(seqtypid::regtype, seqstart, seqincrement, seqmin, seqmax, seqcache, seqcycle)::text
          from relation c join pg_sequence s on s.seqrelid = c.oid""",
    "type": f"""
        select t.oid::regtype::text, row(t.typtype, t.typowner::regrole, t.typnotnull, t.typbasetype::regtype,
                   (select array_agg(e.enumlabel order by e.enumsortorder) from pg_enum e where e.enumtypid = t.oid),
                   {_ACL.format("coalesce(t.typacl, acldefault('T', t.typowner))")})::text
          from pg_type t join member m on m.classid = 'pg_type'::regclass and m.objid = t.oid""",
    "event trigger": """
        select t.evtname, row(t.evtevent, t.evtowner::regrole, t.evtfoid::regprocedure, t.evtenabled, t.evttags)::text
          from pg_event_trigger t join member m on m.classid = 'pg_event_trigger'::regclass and m.objid = t.oid""",
    "schema": f"""
        select n.nspname, row(n.nspowner::regrole, {_ACL.format("coalesce(n.nspacl, acldefault('n', n.nspowner))")})::text
          from pg_namespace n join member m on m.classid = 'pg_namespace'::regclass and m.objid = n.oid""",
    "comment": """
        select pg_describe_object(d.classoid, d.objoid, d.objsubid), d.description
          from pg_description d
         where (d.classoid, d.objoid) in (select classid, objid from member)
            or d.objoid in (select t.oid from pg_trigger t join relation c on c.oid = t.tgrelid)""",
    "first privileges": f"""
        select pg_describe_object(i.classoid, i.objoid, i.objsubid), {_ACL.format("i.initprivs")}::text
          from pg_init_privs i where (i.classoid, i.objoid) in (select classid, objid from member)""",
    "default privileges": f"""
        select row(defaclrole::regrole, defaclnamespace::regnamespace, defaclobjtype)::text, {_ACL.format("defaclacl")}::text
          from pg_default_acl""",
}


def inventory(database: Any) -> dict[str, str | None]:
    """Return what each object of the extension is."""
    with database.connect(autocommit=False) as connection:
        return inventory_in(connection)


def inventory_in(connection: Any) -> dict[str, str | None]:
    """Return what each object of the extension is for a transaction that runs."""
    found: dict[str, str | None] = {}
    connection.execute("set local search_path = pg_catalog")
    for part, query in _PARTS.items():
        for name, value in connection.execute(_MEMBERS + query):
            key = f"{part} {name}"
            assert key not in found, key
            found[key] = value
    return found


def differences(found: dict[str, str | None], wanted: dict[str, str | None]) -> list[str]:
    """Say in what two inventories differ, one line an object."""
    lines = [f"missing: {name}" for name in wanted.keys() - found.keys()]
    lines += [f"too many: {name}" for name in found.keys() - wanted.keys()]
    lines += [
        f"differs: {name}\n  is   {found[name]}\n  must {wanted[name]}"
        for name in wanted.keys() & found.keys()
        if found[name] != wanted[name]
    ]
    return sorted(lines)
