"""Request traces of others as histories, for a warm start: rates, tokens and their lengths."""

from forecasting.traces.trace_file import FORMATS, TraceFormat, read_trace
from forecasting.traces.trace_series import TokenLengths, TraceSeries

__all__ = ["FORMATS", "TokenLengths", "TraceFormat", "TraceSeries", "read_trace"]
