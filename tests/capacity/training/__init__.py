"""Tests of ``capacity.training``."""
