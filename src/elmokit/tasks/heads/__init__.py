"""Heads of the tasks, one module each; every module here registers its tasks."""
