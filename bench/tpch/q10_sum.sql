select n_name, dp_sum(l_extendedprice * (1 - l_discount))
  from customer, orders, lineitem, nation
 where c_custkey = o_custkey and l_orderkey = o_orderkey and c_nationkey = n_nationkey
   and o_orderdate >= date '1993-10-01' and o_orderdate < date '1994-01-01' and l_returnflag = 'R'
 group by n_name
