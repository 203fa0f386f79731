create table edge1 (edge1_from integer not null, edge1_to integer not null);
create table edge2 (edge2_from integer not null, edge2_to integer not null);
create table edge3 (edge3_from integer not null, edge3_to integer not null);
create table edge4 (edge4_from integer not null, edge4_to integer not null);
create table edge5 (edge5_from integer not null, edge5_to integer not null);
