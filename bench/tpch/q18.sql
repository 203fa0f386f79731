-- Query 18 with a condition on orders in place of HAVING sum(l_quantity) > 300.
select dp_count(*)
  from customer, orders, lineitem
 where c_custkey = o_custkey and o_orderkey = l_orderkey and o_totalprice > 100000
