"""Gathering: a finished dataset -> the facts of its report, read in bounded memory."""
