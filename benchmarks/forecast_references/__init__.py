"""Models that wattpack's forecasts are compared with; they share no code with ``forecasting``."""
