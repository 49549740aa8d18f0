"""History out of table files: CSV (plain or gzip) and Parquet."""

from forecasting.files.table import Table
from forecasting.files.table_file import read_table
from forecasting.files.table_source import TableSource

__all__ = ["Table", "TableSource", "read_table"]
