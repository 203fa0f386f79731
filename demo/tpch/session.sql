-- Alice has no privilege on any table:
select has_table_privilege('orders', 'select') as may_read_orders;

-- Orders since 1995 by the customer's nation, in one region.  Nations and regions are public, so
-- every nation of the region is reported, and no other.
select n_name, dp_count(*) as orders,
       dp_interval_low(dp_count(*)) as low, dp_interval_high(dp_count(*)) as high
from region
join nation on n_regionkey = r_regionkey
join customer on c_nationkey = n_nationkey
join orders on o_custkey = c_custkey
where r_name = 'ASIA' and o_orderdate >= '1995-01-01'
group by n_name order by n_name;

-- The same question again, in other words, costs nothing and gets the same numbers.
select n.n_name, dp_count(*) as orders
from customer c, nation n, orders o, region r
where o.o_custkey = c.c_custkey and n.n_nationkey = c.c_nationkey
  and n.n_regionkey = r.r_regionkey and r.r_name = 'ASIA' and o.o_orderdate >= '1995-01-01'
group by n.n_name order by 2 desc limit 3;

-- What would this join of five relations cost?  (Asking it touches no private row.)  Foreign keys
-- say that nation, customer and orders change nothing, so two private relations are left.
select * from dp.explain($$
    select dp_count(*) from nation, customer, orders, lineitem, supplier
    where n_nationkey = c_nationkey and c_custkey = o_custkey
      and o_orderkey = l_orderkey and l_suppkey = s_suppkey $$);

-- What is left:
select role, epsilon_limit, epsilon_spent, epsilon_remaining, delta_remaining, spends from dp.budgets;
