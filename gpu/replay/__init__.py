"""Recorded boards: write down what NVML answers, and put a recording behind the device port."""
