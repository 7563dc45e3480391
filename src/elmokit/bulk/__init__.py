"""Corpora of any size embedded into folders of Parquet shards, here or on a cluster."""

from elmokit.errors import needs_extra

with needs_extra("folders of vectors need pyarrow, which is not installed", "bulk"):
    import pyarrow  # noqa: F401

from elmokit.bulk.embed_corpus import embed_corpus
from elmokit.bulk.shards import open_shards
from elmokit.bulk.table_encoder import row_vectors

__all__ = ["embed_corpus", "open_shards", "row_vectors"]
