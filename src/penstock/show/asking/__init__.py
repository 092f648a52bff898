"""Job of a command: options, presets and job files -> a Config."""
