"""The model: everything with parameters, nothing with files."""
