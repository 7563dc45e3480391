"""Semantic search: an index of sentences, paragraphs or words in context."""

from elmokit.search.index import Index, IndexInfo, read_index_info

__all__ = ["Index", "IndexInfo", "read_index_info"]
