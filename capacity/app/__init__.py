"""Verbs of the capacity package."""
