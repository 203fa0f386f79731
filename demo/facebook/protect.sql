-- What the owner of the network does, once.
select dp.protect('edge1'), dp.protect('edge2'), dp.protect('edge3'), dp.protect('edge4'), dp.protect('edge5');

-- The owners of the ten circles are public knowledge: every one is reported, connected or not.
select dp.set_domain('edge1', 'edge1_from',
                     array[0, 107, 348, 414, 686, 698, 1684, 1912, 3437, 3980]);

select dp.grant_budget('alice', epsilon => 20, delta => 1e-6);
