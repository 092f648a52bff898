"""Trying: a little of a fold's work -> what it costs here, before there is a plan."""
