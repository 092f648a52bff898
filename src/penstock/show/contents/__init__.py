"""Contents of datasets, for people."""
