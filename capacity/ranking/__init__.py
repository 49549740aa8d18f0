"""Other people's kernels: checked as if they cheated, then ranked against the tuned baseline."""
