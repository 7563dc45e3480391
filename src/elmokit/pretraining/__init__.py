"""Pretraining of biLMs."""
