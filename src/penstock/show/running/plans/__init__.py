"""Plans: a Plan -> facts for `--json`, and tables for people."""
