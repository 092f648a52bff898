"""The ground floor: errors, sizes, the machine's limits, files, fingerprints, events."""
