"""Supervised tasks on top of ELMo: datasets, heads, training, evaluation, probing, WSD."""
