"""`inbounds compare`: every scheme on every task, at equal budget, in one table."""
