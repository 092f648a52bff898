"""Memory: what a machine allows, what work costs, and how much room that leaves."""
