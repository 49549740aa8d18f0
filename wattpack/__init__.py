"""The shared house of wattpack: what every package may import."""
