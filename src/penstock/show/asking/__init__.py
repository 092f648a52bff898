"""What a command asks for: options, presets and job files -> a Config."""
