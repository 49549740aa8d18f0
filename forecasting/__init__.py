"""Demand forecasts: series sources, forecasters, calibration and decisions."""
