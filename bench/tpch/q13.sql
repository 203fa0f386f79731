-- Query 13 without its outer join and histogram: orders whose comment has no special requests.
select dp_count(*)
  from customer, orders
 where c_custkey = o_custkey and o_comment not like '%special%requests%'
