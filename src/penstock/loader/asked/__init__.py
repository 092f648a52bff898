"""Asked: paths and options of `load` -> the parts of a loader, all checked."""
