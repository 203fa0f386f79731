-- The body of dp.rotate_sketch_seeds, which alone calls it.
create or replace function dp.python_rotate_sketch_seeds()
returns bigint
language plpython3u volatile parallel unsafe security definer
#!settings
as $python$
#!boot
return GD["dpsql"].call(plpy, GD, "rotate_sketch_seeds")
$python$;

comment on function dp.python_rotate_sketch_seeds() is 'internal: dp.rotate_sketch_seeds';

alter function dp.python_rotate_sketch_seeds() owner to dp_executor;
