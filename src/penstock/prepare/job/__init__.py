"""What was asked: a job file, a mapping or a preset -> Config."""
