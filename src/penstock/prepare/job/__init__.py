"""The job: a job file, a mapping or a preset -> Config."""
