"""Forests fitted in a process beside the forecaster, so that no round waits for a fit."""
