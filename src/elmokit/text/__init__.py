"""Strings become ids: the only room that looks inside a word."""
