"""Deploy: a job file -> a script for Slurm, or an app for Modal, that prepares its dataset there."""
