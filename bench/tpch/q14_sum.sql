select dp_sum(l_extendedprice * (1 - l_discount)) filter (where p_type like 'PROMO%') as promo,
       dp_sum(l_extendedprice * (1 - l_discount)) as all_parts
  from lineitem, part
 where l_partkey = p_partkey and l_shipdate >= date '1995-09-01' and l_shipdate < date '1995-10-01'
