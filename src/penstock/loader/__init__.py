"""The accelerator half: feed training loops from prepared datasets, deterministically."""
