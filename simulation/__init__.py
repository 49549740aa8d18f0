"""The digital twin: plants, workloads, faults and the clocks that drive them."""
