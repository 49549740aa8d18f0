"""A snapshot as arrays, what a place is worth, and the greedy plan that always exists."""
