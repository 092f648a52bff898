"""What tests with real clusters share."""
