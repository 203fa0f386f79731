-- Alice has no privilege on any table:
select has_table_privilege('edge1', 'select') as may_read_edge1;

-- How many friends has the owner of each circle in the first relation?  With 95 % probability
-- each true number lies between low and high; 0 inside says that there may be none.
select edge1_from as person, dp_count(*) as friends,
       dp_interval_low(dp_count(*)) as low, dp_interval_high(dp_count(*)) as high
from edge1 group by edge1_from order by edge1_from;

-- How many directed triangles run through three relations?
select dp_count(*) as triangles,
       dp_interval_low(dp_count(*)) as low, dp_interval_high(dp_count(*)) as high
from edge1, edge2, edge3
where edge1_to = edge2_from and edge2_to = edge3_from and edge3_to = edge1_from;

-- What would a path of five edges cost? (Asking this touches no private row.)
select * from dp.explain($$
    select dp_count(*) from edge1, edge2, edge3, edge4, edge5
    where edge1_to = edge2_from and edge2_to = edge3_from
      and edge3_to = edge4_from and edge4_to = edge5_from $$);

-- What is left:
select role, epsilon_limit, epsilon_spent, epsilon_remaining, delta_remaining, spends from dp.budgets;
