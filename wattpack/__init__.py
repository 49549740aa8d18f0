"""The shared house of wattpack: what every package may import."""

__version__ = "0.1.0"
