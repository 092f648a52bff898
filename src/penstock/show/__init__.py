"""The screen: each file turns one thing into facts (a dict for programs) and those into tables for people."""
