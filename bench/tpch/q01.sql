select l_returnflag, l_linestatus, dp_count(*)
  from lineitem
 where l_shipdate <= date '1998-12-01' - interval '90 days'
 group by l_returnflag, l_linestatus
