-- A small shop for the first session: alice asks, steward owns.  Not for real data: passwords are written here.
CREATE ROLE steward LOGIN PASSWORD 'steward';
CREATE ROLE alice LOGIN PASSWORD 'alice';
CREATE ROLE superset LOGIN PASSWORD 'superset';
GRANT dp_owner TO steward;
GRANT CREATE ON SCHEMA public TO steward;

SET ROLE steward;
CREATE TABLE city (id integer PRIMARY KEY, name text NOT NULL);
CREATE TABLE customer (id integer PRIMARY KEY, city integer NOT NULL REFERENCES city, kind text NOT NULL);
CREATE TABLE purchase (
    id integer PRIMARY KEY,
    customer integer NOT NULL REFERENCES customer,
    day date NOT NULL,
    pieces integer NOT NULL);
INSERT INTO city VALUES (1, 'Aachen'), (2, 'Berlin'), (3, 'Celle'), (4, 'Dresden');
INSERT INTO customer
SELECT i, 1 + i % 4, CASE WHEN i % 5 = 0 THEN 'club' ELSE 'single' END FROM generate_series(1, 5000) AS i;
INSERT INTO purchase
SELECT i, 1 + i * 7 % 5000, date '2026-01-01' + i % 180, 1 + i % 6 FROM generate_series(1, 20000) AS i;

SELECT dp.protect('customer', privacy_unit => 'id');
SELECT dp.declare_public('city');
SELECT dp.set_domain('customer', 'kind', array['club', 'single']);
SELECT dp.set_domain('purchase', 'day', date '2026-01-01', date '2026-06-30');
SELECT dp.set_domain('purchase', 'pieces', 1, 6);
SELECT dp.grant_budget('alice', epsilon => 20, delta => 1e-6);
SELECT dp.grant_budget('superset', epsilon => 20, delta => 1e-6);
SELECT dp.expose('customer', array['city', 'kind'], 'customers');
SELECT dp.expose('purchase', array['day', 'pieces'], 'purchases');
RESET ROLE;

SELECT count(*) AS closed FROM dp.lockdown();
