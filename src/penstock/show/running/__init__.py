"""A job before, while and after it runs."""
