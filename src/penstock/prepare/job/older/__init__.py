"""Configs of older programs -> job files of penstock."""
