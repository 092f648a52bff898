"""Ways to split that are not shares of a hash: by time, by exact counts; and the names that splits may have."""
