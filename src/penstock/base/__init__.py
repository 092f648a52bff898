"""What every other room stands on: errors, sizes, the machine's limits, files, fingerprints, events."""
