"""Request traces of others as histories, for a warm start: rates, tokens and their lengths."""

from forecasting.traces.trace_file import FORMATS, TraceFormat, read_trace
from forecasting.traces.trace_series import TokenLengths, TraceSeries, is_of_lengths

__all__ = ["FORMATS", "TokenLengths", "TraceFormat", "TraceSeries", "is_of_lengths", "read_trace"]
