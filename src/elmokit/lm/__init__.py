"""Raw text becomes a language model."""
