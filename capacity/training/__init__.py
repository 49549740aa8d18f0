"""Training over many GPUs: step time, power and memory of a parallel layout on given links.

Pure: jobs, layouts, links and costs come in as values, plans go out.
"""
