"""What people look at. Each file turns one thing into facts (a dict for programs) and those into tables for people."""
