"""One module a published comparison or a promise; run with ``python -m benchmarks NAME``."""
