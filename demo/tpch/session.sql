-- Alice has no privilege on any table:
select has_table_privilege('orders', 'select') as may_read_orders;

-- Orders since 1995 by the customer's nation.  Every nation is reported: nations are public.
select n_name, dp_count(*) as orders
from nation
join customer on c_nationkey = n_nationkey
join orders on o_custkey = c_custkey
where o_orderdate >= '1995-01-01'
group by n_name order by n_name;

-- The same question again, in other words, costs nothing and gets the same numbers.
select n.n_name, dp_count(*) as orders
from customer c, nation n, orders o
where o.o_custkey = c.c_custkey and n.n_nationkey = c.c_nationkey
  and o.o_orderdate >= '1995-01-01'
group by n.n_name order by 2 desc limit 3;

-- What would a join of four private relations cost? (Asking this touches no private row.)
select * from dp.explain($$
    select dp_count(*) from nation, customer, orders, lineitem, supplier
    where n_nationkey = c_nationkey and c_custkey = o_custkey
      and o_orderkey = l_orderkey and l_suppkey = s_suppkey $$);

-- What is left:
select * from dp.budgets;
