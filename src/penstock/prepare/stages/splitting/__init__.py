"""Ways to split that are not shares of a hash: by time; and the names that splits may have."""
