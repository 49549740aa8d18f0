"""What a watt buys: GPU profiles, iteration time and power under a cap."""
