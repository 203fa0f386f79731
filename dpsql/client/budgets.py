"""``dpsql budgets``: who may spend how much, and did."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

import typer

from dpsql.client.amounts import Delta, amount
from dpsql.client.session import Dsn, Json, call, require_extension, rows, session, values
from dpsql.client.shown import print_json, print_table

app = typer.Typer(help="What roles may spend, and what was spent.", no_args_is_help=True)

_BUDGETS = """
select account, role::text, relation, composition, epsilon_limit, epsilon_spent, epsilon_remaining,
       delta_limit, delta_spent, delta_remaining, spends, budget_window::text, window_start,
       window_end, window_epsilon_spent
  from dp.budgets order by account desc, role, relation
"""
_BURN = """
select account, role::text, relation, step_start, spends, epsilon, delta, spends_sum, epsilon_spent,
       delta_spent
  from dp.burn(%(step)s::interval)
 where %(account)s::text is null or role = %(account)s or relation = %(account)s
    or relation in (select format('%%I.%%I', n.nspname, c.relname)
                      from pg_catalog.pg_class as c
                      join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
                     where c.oid = %(seen)s::oid)
"""
# what the name means on the path of who asks
_SEEN = "select pg_catalog.to_regclass(pg_catalog.quote_ident(%s::text))::oid as seen"


@app.command(
    "list",
    epilog="\b\nExample:\n  dpsql budgets list --dsn 'dbname=shop user=steward' --json"
    " | jq '.[].epsilon_spent'",
)
def list_budgets(dsn: Dsn = "", as_json: Json = False) -> None:
    """List the accounts that you may see: limits, what is spent, what is left."""
    with session(dsn, as_json) as connection:
        require_extension(connection)
        found = rows(connection, _BUDGETS)
    if as_json:
        print_json(found)
        return
    for row in found:
        row["name"] = row["role"] if row["account"] == "role" else row["relation"]
    columns = ["account", "name", "epsilon_limit", "epsilon_spent", "epsilon_remaining"]
    columns += ["delta_limit", "delta_spent", "spends", "budget_window"]
    print_table(found, columns)


@app.command(epilog="\b\nExample:\n  dpsql budgets grant alice --epsilon 10 --delta 1e-6")
def grant(
    role: Annotated[str, typer.Argument(help="who may ask")],
    epsilon: Annotated[
        Decimal, typer.Option(parser=amount, metavar="NUMBER", help="in all, or in each window")
    ],
    delta: Delta = None,
    composition: Annotated[
        str | None, typer.Option(help="basic, or zcdp for many small questions")
    ] = None,
    window: Annotated[
        str | None, typer.Option(help="'1 month', for instance: the budget holds for each")
    ] = None,
    dsn: Dsn = "",
    as_json: Json = False,
) -> None:
    """Set the budget of a role."""
    arguments: dict[str, tuple[str, object]] = {
        "role": ("regrole", _quoted(role)),
        "epsilon": ("numeric", epsilon),
        "delta": ("numeric", delta),
        "composition": ("text", composition),
        "budget_window": ("interval", window),
    }
    with session(dsn, as_json) as connection:
        require_extension(connection)
        connection.execute(call("grant_budget", arguments), values(arguments))
        found = [row for row in rows(connection, _BUDGETS) if row["role"] == role]
    if as_json:
        print_json(found[0])
    else:
        print(f"{role}: epsilon {found[0]['epsilon_limit']}, delta {found[0]['delta_limit']}")


@app.command(epilog="\b\nExample:\n  dpsql budgets revoke alice")
def revoke(
    role: Annotated[str, typer.Argument(help="who asks no longer")],
    dsn: Dsn = "",
    as_json: Json = False,
) -> None:
    """Take the budget of a role; what it spent stays spent."""
    with session(dsn, as_json) as connection:
        require_extension(connection)
        connection.execute(
            call("revoke_budget", {"role": ("regrole", role)}), {"role": _quoted(role)}
        )
    if as_json:
        print_json({"role": role, "revoked": True})
    else:
        print(f"{role}: no budget")


@app.command(epilog="\b\nExample:\n  dpsql budgets burn alice --step '1 day'")
def burn(
    account: Annotated[
        str | None, typer.Argument(help="a role or a relation; all accounts without")
    ] = None,
    step: Annotated[
        str | None, typer.Option(help="length of a step, in days, hours and minutes")
    ] = None,
    dsn: Dsn = "",
    as_json: Json = False,
) -> None:
    """Show how budgets were spent over time."""
    with session(dsn, as_json) as connection:
        require_extension(connection)
        (found_account,) = connection.execute(_SEEN, (account,)).fetchall()
        found = rows(connection, _BURN, step=step, account=account, seen=found_account["seen"])
    if as_json:
        print_json(found)
        return
    for row in found:
        row["name"] = row["role"] if row["account"] == "role" else row["relation"]
    print_table(
        found,
        ["account", "name", "step_start", "spends", "epsilon", "epsilon_spent", "delta_spent"],
    )


def _quoted(role: str) -> str:
    """Return a role's name as regrole reads it."""
    return '"' + role.replace('"', '""') + '"'
