"""Plan: passes, their settings and projections, before anything is done."""
