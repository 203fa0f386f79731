select dp_sum(o_totalprice)
  from customer, orders
 where c_custkey = o_custkey and o_comment not like '%special%requests%'
