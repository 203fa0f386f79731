select n_name, dp_count(*)
  from nation, customer, orders, lineitem
 where n_nationkey = c_nationkey and c_custkey = o_custkey and o_orderkey = l_orderkey
 group by n_name
