"""Deploy: a job file -> a script for Slurm or an app for Modal, which runs the job there."""
