-- Alice has no privilege on any table:
select has_table_privilege('edge1', 'select') as may_read_edge1;

-- How many friends of friends has the owner of each circle?
select edge1_from as person, dp_count(*) as friends_of_friends
from edge1 join edge2 on edge1_to = edge2_from
group by edge1_from order by edge1_from;

-- How many directed triangles run through the first three relations?
select dp_count(*) as triangles
from edge1, edge2, edge3
where edge1_to = edge2_from and edge2_to = edge3_from and edge3_to = edge1_from;

-- What would a path of five edges cost? (Asking this touches no private row.)
select * from dp.explain($$
    select dp_count(*) from edge1, edge2, edge3, edge4, edge5
    where edge1_to = edge2_from and edge2_to = edge3_from
      and edge3_to = edge4_from and edge4_to = edge5_from $$);

-- What is left:
select * from dp.budgets;
