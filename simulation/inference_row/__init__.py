"""A row of servers that answer requests, calibrated to a published production row.

What one server takes and draws is ``capacity.phase_times``; ``request_classes`` who asks for what,
``client_arrivals`` and ``trace_arrivals`` when, ``batching_servers`` the queues, ``row_work`` the
row as a rig drives it, ``latency_accounts`` what requests saw, ``row_power`` servers around the
GPUs for runs without a rig, ``row_calibration`` the frozen constants, ``published_policies`` what
others do.
"""
