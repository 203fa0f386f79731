"""A schema as people write it, and the questions that they ask first.

Rentals of films: domains, enums, arrays, tsvector, NULLs, and payments in partitions of which each
has foreign keys of its own.  Each question is answered, or refused for nothing with a hint which,
followed word for word, works.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

SET_UP = """
grant dp_owner to owner1; grant create on schema public to owner1;
"""
SCHEMA = """
create domain year as integer check (value between 1901 and 2155);
create domain email as text check (value like '%@%');
create type rating as enum ('G', 'PG', 'R');
create table category (category_id int primary key, name text not null);
create table customer (customer_id int primary key, store_id int not null, first_name text not null,
  email email, active boolean not null default true, born year, created date not null, notes text);
create table film (film_id int primary key, title text not null, release_year year, rating rating,
  length smallint, rate numeric(4,2) not null, features text[], fulltext tsvector,
  category_id int not null references category);
create table rental (rental_id int primary key, customer_id int not null references customer,
  film_id int not null references film, rented timestamptz not null, returned timestamptz);
create table payment (payment_id int not null, customer_id int not null, rental_id int not null,
  amount numeric(5,2) not null, paid timestamptz not null) partition by range (paid);
create table payment_1 partition of payment for values from ('2022-01-01') to ('2022-02-01');
create table payment_2 partition of payment for values from ('2022-02-01') to ('2022-03-01');
create table payment_x partition of payment default;
"""
ROWS = """
insert into category values (1, 'Action'), (2, 'Drama'), (3, 'Empty');
insert into customer select i, 1 + i % 2, 'n' || i, case when i % 5 > 0 then 'a@b' || i end,
  i % 7 > 0, case when i % 3 > 0 then 1950 + i % 50 end, date '2021-01-01' + i % 300, null
  from generate_series(1, 400) as i;
insert into film select i, 'film ' || i, 2000 + i % 20, (array['G', 'PG', 'R', null]::rating[])[1 + i % 4],
  60 + i % 100, 0.99 + i % 3, array['x'], to_tsvector('film ' || i), 1 + i % 2 from generate_series(1, 100) as i;
insert into rental select i, 1 + i % 400, 1 + i % 100, timestamptz '2022-01-01 00:00+00' + i * interval '1 hour',
  case when i % 4 > 0 then timestamptz '2022-01-03 00:00+00' + i * interval '1 hour' end
  from generate_series(1, 2000) as i;
insert into payment select rental_id, customer_id, rental_id, 0.99 + rental_id % 5, rented from rental;
"""
DECLARED = """
select dp.declare_public('category'), dp.declare_public('film');
select dp.protect('customer', privacy_unit => 'customer_id');
select dp.set_domain('customer', 'store_id', 1, 2);
select dp.set_domain('payment', 'amount', 0, 12);
select dp.link('payment', 'rental', array['rental_id'], follow => false);
grant select on all tables in schema public to alice;
"""
C, R, P = "FROM customer", "FROM rental", "FROM payment"
JOINED = "FROM rental JOIN film USING (film_id) JOIN category USING (category_id)"
#: Questions that are answered.  A payment has two ways to a customer, of which the owner cut one.
ANSWERED = (
    f"SELECT dp_count(*) {C}",
    f"SELECT dp_count(*) {R}",
    f"SELECT dp_count(*) {P}",
    f"SELECT dp_count(*) {C} WHERE active",
    f"SELECT active, dp_count(*) {C} GROUP BY active",
    f"SELECT store_id, dp_count(*) {C} GROUP BY store_id ORDER BY store_id",
    f"SELECT dp_count(email) {C}",
    f"SELECT dp_count(*) {C} WHERE born > 1980",
    f"SELECT dp_count(*) {C} WHERE born IS NULL",
    f"SELECT dp_avg(2022 - born, 0, 100) {C}",
    f"SELECT dp_count(*) {C} WHERE email LIKE '%@b1%'",
    f"SELECT dp_sum(amount) {P}",
    f"SELECT dp_avg(amount) {P}",
    f"SELECT dp_sum(amount) / dp_count(*) AS mean {P}",
    f"SELECT dp_median(amount, 0, 12) {P}",
    f"SELECT dp_count(DISTINCT customer_id) {R}",
    f"SELECT name, dp_count(*) {JOINED} GROUP BY name ORDER BY name",
    f"SELECT rating, dp_count(*) {JOINED} GROUP BY rating",
    f"SELECT dp_count(*) {JOINED} WHERE release_year >= 2010",
    f"SELECT CAST(release_year AS integer) AS year, dp_count(*) {JOINED} GROUP BY 1",
    f"SELECT dp_count(*) {JOINED} WHERE rating = 'PG' AND length > 90",
    f"SELECT dp_count(*) {R} WHERE returned IS NULL",
    f"SELECT extract(month FROM rented)::int AS month, dp_count(*) {R} GROUP BY 1",
    f"SELECT date_part('hour', paid)::int AS hour, dp_count(*) {P} GROUP BY 1 ORDER BY 1",
    f"SELECT dp_count(*) {P} WHERE paid >= '2022-02-01' AND paid < '2022-03-01'",
    f"SELECT store_id, dp_sum(amount) {P} JOIN customer USING (customer_id) GROUP BY store_id",
    f"SELECT name, dp_sum(amount) / dp_count(*) AS mean {P} JOIN rental USING (rental_id, customer_id)"
    " JOIN film USING (film_id) JOIN category USING (category_id) GROUP BY name",
    f"SELECT CASE WHEN amount < 5 THEN 'low' ELSE 'high' END AS size, dp_count(*) {P} GROUP BY 1",
    f"SELECT dp_count(*) {R} WHERE returned - rented > interval '2 days'",
    f"SELECT store_id, dp_count(*) {C} GROUP BY store_id HAVING dp_count(*) > 10",
)


@pytest.fixture(scope="module")
def rentals(server: Any) -> Iterator[Any]:
    """Make the schema; the keys of payments are those of each partition."""
    database = server.create_database()
    database.sql(SET_UP)
    with database.connect(user="owner1") as owner:
        owner.execute(SCHEMA)
        for part in ("payment_1", "payment_2", "payment_x"):
            owner.execute(f"alter table {part} add foreign key (customer_id) references customer")
            owner.execute(f"alter table {part} add foreign key (rental_id) references rental")
        owner.execute(ROWS)
        owner.execute(DECLARED)
    database.sql("select dp.set_root_cap('customer', 1e6), dp.grant_budget('alice', 1e6)")
    yield database
    server.drop_database(database)


@pytest.mark.parametrize("text", ANSWERED)
def test_is_answered(rentals: Any, text: str) -> None:
    with rentals.connect(user="alice") as alice:
        alice.execute("set dp.epsilon = 5; set dp.max_rows_contributed = 8")
        try:
            alice.execute(text).fetchall()
        except psycopg.Error as error:
            pytest.fail(f"{error.sqlstate} {error} {error.diag.message_hint}")


def test_customers_that_may_differ_are_told_and_equated(rentals: Any) -> None:
    joined = "SELECT name, dp_count(*) FROM payment p JOIN rental r ON p.rental_id = r.rental_id"
    joined += " JOIN film USING (film_id) JOIN category USING (category_id)"
    before = rentals.sql("select count(*) from dp.spend")
    with rentals.connect(user="alice") as alice:
        alice.execute("set dp.max_rows_contributed = 8")
        with pytest.raises(psycopg.Error) as caught:
            alice.execute(joined + " GROUP BY name")
        assert caught.value.sqlstate == "PD011"
        assert "WHERE a.customer = b.customer" in str(caught.value.diag.message_hint)
        assert rentals.sql("select count(*) from dp.spend") == before
        alice.execute(joined + " WHERE p.customer_id = r.customer_id GROUP BY name")
