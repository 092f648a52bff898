"""Steps that several sources share between a file's bytes and its rows."""
