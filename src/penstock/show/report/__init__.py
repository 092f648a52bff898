"""Report: a finished dataset, or a benchmark of its loader -> one HTML file: facts, then charts, then the page."""
