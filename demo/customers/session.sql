-- Whom does it protect?  A customer, with everything that foreign keys lead to.
select relation_name, kind, privacy_unit from dp.relations order by kind desc, relation_name;

-- Orders, money and customers by nation: one selection, one budget for three numbers.
select n_name, dp_count(*) as orders, dp_sum(o_totalprice, 0, 500000)::bigint as money,
       dp_count(distinct c_custkey) as customers
from nation join customer on c_nationkey = n_nationkey join orders on o_custkey = c_custkey
where n_regionkey = 2 group by n_name order by 2 desc;

-- What would a question cost, and how far off would it be?  (Asking that touches no private row.)  A customer
-- has one country, so the error of the first is known before; of the second it is told with the answer.
select column_name, epsilon, expected_error, error_95
from dp.estimate($$ select n_name, dp_count(*) from nation join customer on c_nationkey = n_nationkey
                    group by n_name $$);
select column_name, epsilon, expected_error, bias
from dp.estimate($$ select dp_count(*), dp_avg(l_quantity) from lineitem $$);

-- Averages and medians, with bounds that the owner declared.  Several aggregates of one statement share
-- its epsilon, so the median, which needs most, is asked for by itself.
select l_returnflag, dp_count(*) as items, round(dp_avg(l_quantity), 2) as average
from lineitem group by l_returnflag order by 1;
select l_returnflag, dp_median(l_quantity) as median from lineitem group by l_returnflag order by 1;

-- With intervals of 95 %: x_covers says what is inside.
select * from dp.query($$ select dp_count(*) as big_orders from orders where o_totalprice > 200000 $$,
                       intervals => 0.95);

-- What is left:
select role, epsilon_limit, epsilon_spent, epsilon_remaining, spends from dp.budgets;
