"""Readers of labelled data: files in the formats of the field, to records of words and labels."""
