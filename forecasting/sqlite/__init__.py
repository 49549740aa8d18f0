"""History in one SQLite file."""

from forecasting.sqlite.history_store import HistoryStore

__all__ = ["HistoryStore"]
