"""Near: finds documents that are nearly the same, by their shingles, in bounded memory. Passes: passes/near/."""
