"""The capacity model: from measured kernels to time, draw and cap response of any mix of them."""
