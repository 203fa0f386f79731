"""A shop whose relations are exposed as views of the schema dpv."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

ORDERS = 600
#: Every value of every declared domain occurs, so that PostgreSQL has the groups of the domains.
SET_UP = f"""
create type channel as enum ('web', 'shop');
create table customer (c_id int primary key, c_country text not null, c_secret text);
create table "Orders" (o_id bigint primary key, o_customer int not null references customer,
  o_status text not null, o_amount numeric(10,2) not null, o_day date not null, o_at timestamp not null,
  o_channel channel not null, o_note text collate "C", o_secret int not null, o_extra json);
insert into customer select i, (array['DE', 'FR'])[1 + i % 2], 'secret ' || i from generate_series(1, 60) as i;
insert into "Orders" select i, 1 + (i * i) % 60, (array['open', 'sent', 'open', 'back', 'open', 'sent'])[1 + i % 6], i % 97 + 0.25,
    date '2024-01-01' + i % 91, timestamp '2024-01-01 08:00' + i % 91 * interval '1 day',
    (array['web', 'shop'])[1 + (i / 6) % 2]::channel, 'note ' || i % 5, i, '{{}}'
  from generate_series(1, {ORDERS}) as i;
comment on table "Orders" is 'what was bought';
comment on column "Orders".o_amount is 'in euros';
alter table customer owner to owner1;
alter table "Orders" owner to owner1;
alter type channel owner to owner1;
grant dp_owner to owner1;
grant create, usage on schema public to alice, owner1;
select dp.protect('customer'), dp.protect('"Orders"');
select dp.set_domain('customer', 'c_country', array['DE', 'FR']);
select dp.set_domain('"Orders"', 'o_status', array['open', 'sent', 'back']);
select dp.set_domain('"Orders"', 'o_amount', 0, 100);
select dp.set_domain('"Orders"', 'o_day', date '2024-01-01', date '2024-03-31');
select dp.set_domain('"Orders"', 'o_at', array(select timestamp '2024-01-01 08:00' + i * interval '1 day'
  from generate_series(0, 90) as i));
select dp.grant_budget('alice', epsilon => 100000, delta => 1e-4);
select dp.grant_budget('bob', epsilon => 100000, delta => 1e-4);
select dp.grant_budget('postgres', epsilon => 100000, delta => 1e-4);
"""
EXPOSE = """
set role owner1;
select dp.expose('"Orders"', array['o_id', 'o_customer', 'o_status', 'o_amount', 'o_day', 'o_at', 'o_channel', 'o_note', 'o_extra']);
select dp.expose('customer', array['c_id', 'c_country']);
"""


def plain(rows: list[Any]) -> list[list[object]]:
    """Return rows with nine digits of each number: quotients and roots hang on how they were computed."""
    return [
        [float(f"{v:.9g}") if isinstance(v, (Decimal, float)) else v for v in row] for row in rows
    ]
