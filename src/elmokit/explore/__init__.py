"""Vectors become what can be seen and searched: looking, without learning."""
