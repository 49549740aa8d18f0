"""The forecaster process and its command line."""
