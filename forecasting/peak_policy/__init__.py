"""The highest value of the coming window: joint paths, and policies that promise its quantiles."""
