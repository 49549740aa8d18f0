"""The demo: every process of the product on one machine, over loopback, against the twin."""
