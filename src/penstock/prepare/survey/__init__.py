"""What there is: files, columns, slices and first rows -> Survey."""
