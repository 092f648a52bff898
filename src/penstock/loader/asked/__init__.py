"""Asked: paths and options of `load`, checked, and turned into what a loader is made of."""
