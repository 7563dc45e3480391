"""Search by words and by meaning: an index of sentences, paragraphs or words in context.

As importing torch takes seconds, each public name is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from elmokit.search.index import Index as Index
    from elmokit.search.store import Hit as Hit
    from elmokit.search.store import IndexInfo as IndexInfo
    from elmokit.search.store import read_index_info as read_index_info

Mode = Literal["hybrid", "semantic", "lexical"]
MODES: dict[str, str] = {
    "hybrid": "the words of the query and their meaning",
    "semantic": "meaning alone, by vectors",
    "lexical": "words alone, by BM25",
}

_MODULE_OF = {
    "Hit": "store",
    "Index": "index",
    "IndexInfo": "store",
    "read_index_info": "store",
}
__all__ = ["MODES", "Hit", "Index", "IndexInfo", "Mode", "read_index_info"]


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'elmokit.search' has no attribute {name!r}")
    return getattr(import_module(f"elmokit.search.{_MODULE_OF[name]}"), name)
