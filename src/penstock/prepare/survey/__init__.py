"""The input: files, columns, slices and first rows -> Survey."""
