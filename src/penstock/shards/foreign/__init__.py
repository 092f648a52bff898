"""Files that other programs read or wrote: ArrayRecord, HDF5, Hugging Face, MaxText, .npz batches."""
