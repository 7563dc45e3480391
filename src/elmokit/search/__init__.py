"""Semantic search: an index of sentences, paragraphs or words in context."""
