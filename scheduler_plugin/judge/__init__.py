"""Judges of plans: plain Python over documents, no code shared with what makes the plans."""
