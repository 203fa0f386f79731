-- Query 12 without GROUP BY l_shipmode: both counts over all lines of the two modes.
select dp_count(*) filter (where o_orderpriority in ('1-URGENT', '2-HIGH')) as high_line_count,
       dp_count(*) filter (where o_orderpriority not in ('1-URGENT', '2-HIGH')) as low_line_count
  from orders, lineitem
 where o_orderkey = l_orderkey and l_shipmode in ('MAIL', 'SHIP') and l_commitdate < l_receiptdate
   and l_shipdate < l_commitdate and l_receiptdate >= date '1994-01-01' and l_receiptdate < date '1995-01-01'
