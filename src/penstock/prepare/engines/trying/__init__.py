"""Trying: a worker tries a little of a job before there is a plan."""
