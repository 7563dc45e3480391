"""Ids become vectors: everything with parameters, nothing with files."""
