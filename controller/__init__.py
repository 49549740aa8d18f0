"""Power control: budgets, breaker heat, allocation, leases and the processes that run them."""
