"""History in one SQLite file."""

from forecasting.sqlite.store import HistoryStore

__all__ = ["HistoryStore"]
