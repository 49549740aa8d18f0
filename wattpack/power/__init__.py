"""The power tree: breakers, limits and the arithmetic of I1 and I2."""
