"""Text: stages that make rows of tokens of documents."""
