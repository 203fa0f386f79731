select l_returnflag, l_linestatus, dp_sum(l_quantity), dp_sum(l_extendedprice),
       dp_sum(l_extendedprice * (1 - l_discount)), dp_sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)),
       dp_avg(l_quantity), dp_avg(l_extendedprice), dp_avg(l_discount), dp_count(*)
  from lineitem
 where l_shipdate <= date '1998-12-01' - interval '90 days'
 group by l_returnflag, l_linestatus
