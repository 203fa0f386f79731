-- What the owner of the sales does, once.
select dp.protect('customer'), dp.protect('orders'), dp.protect('lineitem'),
       dp.protect('supplier'), dp.protect('partsupp');
select dp.declare_public('nation'), dp.declare_public('region'), dp.declare_public('part');
select dp.grant_budget('alice', epsilon => 20, delta => 1e-6);
