"""Independent jobs: one after the other, in processes of this machine, or on a Dask cluster."""
