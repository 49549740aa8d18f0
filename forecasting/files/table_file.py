"""Which kind of table a file is."""

from __future__ import annotations

from pathlib import Path

from forecasting.files.csv_table import read_csv
from forecasting.files.local_times import zone_of
from forecasting.files.parquet_table import read_parquet
from forecasting.files.table import Table
from forecasting.files.text_lines import Progress, regular_file
from wattpack.errors import InputError


def read_table(file: Path, zone: str | None = None, progress: Progress | None = None) -> Table:
    """A table out of a CSV file (plain or gzip) or a Parquet file, told apart by its first bytes.

    Args:
        file: The file.
        zone: Name of the zone of times that state none, for example ``Europe/Berlin``.
        progress: Told how far it is; Parquet is read at once.

    Raises:
        InputError: naming the line or the column.
    """
    told = zone_of(zone) if zone else None
    try:
        with regular_file(file).open("rb") as opened:
            is_parquet = opened.read(4) == b"PAR1"
    except OSError as error:
        raise InputError("file", "a readable file", str(error), str(file)) from error
    return read_parquet(file, told) if is_parquet else read_csv(file, told, progress)
