"""What the forecaster would have said at earlier times, and what came."""
