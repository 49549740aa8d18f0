"""Keeping promises: what came moves what is promised next, and is counted for everybody to see.

``pooled`` corrects quantiles of steps and of peaks, ``promise_record`` counts what was kept.
"""
