select dp_sum(o_totalprice) from orders
