select dp_sum(l_extendedprice * (1 - l_discount))
  from lineitem, part
 where p_partkey = l_partkey and l_shipmode in ('AIR', 'REG AIR') and l_shipinstruct = 'DELIVER IN PERSON'
   and (p_brand = 'Brand#12' and l_quantity between 1 and 11
        or p_brand = 'Brand#23' and l_quantity between 10 and 20
        or p_brand = 'Brand#34' and l_quantity between 20 and 30)
