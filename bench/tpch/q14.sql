select dp_count(*) filter (where p_type like 'PROMO%') as promo, dp_count(*) as all_parts
  from lineitem, part
 where l_partkey = p_partkey and l_shipdate >= date '1995-09-01' and l_shipdate < date '1995-10-01'
