select dp_count(*) from orders
