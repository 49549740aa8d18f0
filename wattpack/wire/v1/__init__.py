"""Generated from proto/wattpack/v1 by ``make generate``: do not edit."""
