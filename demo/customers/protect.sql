-- What the owner of the shop does, once: a customer is protected with all orders and their items,
-- which foreign keys tell; what else there is, is public.
select dp.protect('customer', privacy_unit => 'c_custkey', delta => 1e-5);
select dp.declare_public('nation'), dp.declare_public('region'), dp.declare_public('part'),
       dp.declare_public('supplier'), dp.declare_public('partsupp');
-- Values that everybody knows, so that groups by them are shown in full and sums have bounds.
select dp.set_domain('lineitem', 'l_returnflag', array['A', 'N', 'R']);
select dp.set_domain('lineitem', 'l_quantity', 1, 50);
select dp.set_domain('orders', 'o_orderdate', date '1992-01-01', date '1998-08-02');
select dp.grant_budget('alice', epsilon => 20, delta => 1e-6);
