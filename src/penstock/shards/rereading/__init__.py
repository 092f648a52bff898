"""Documents of the input, read again where origins say that they were."""
