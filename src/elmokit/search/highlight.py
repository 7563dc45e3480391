"""Highlighting the words of found passages that are nearest to the query's content words."""

from collections.abc import Sequence

import numpy as np

from elmokit.pooling import Vectors, is_word
from elmokit.search.index import Index
from elmokit.vocab import Vocabulary

_SHARE_OF_BEST = 0.7  # of the cosine of the passage's nearest word
_MOST_FREQUENT = 50  # words of a model's vocabulary, which are function words in any language

ENGLISH_STOP_WORDS = frozenset(
    """
    a about above after again against ago all also although am among an and another any anybody
    anyone anything are aren't around as at be became because become been before behind being below
    beside between both but by can can't cannot could couldn't did didn't do does doesn't doing
    don't down during each either else enough etc even ever every everybody everyone everything few
    for from further had hadn't has hasn't have haven't having he her here hers herself him himself
    his how however i if in indeed instead into is isn't it its itself just least less let lot lots
    many may me might mine more most much must my myself neither never no nobody none nor not
    nothing now of off often on once one only onto or other others otherwise our ours ourselves out
    over own per perhaps quite rather really same shall she should shouldn't since so some somebody
    someone something still such than that the their theirs them themselves then there therefore
    these they this those though through thus to together too toward towards under unless until up
    upon us very was wasn't we were weren't what whatever when where whether which while who whoever
    whom whose why will with within without won't would wouldn't yet you your yours yourself
    yourselves
    's 't 'd 'll 'm 're 've n't s t d ll m re ve ca wo ain
    """.split()  # noqa: SIM905  a list of words is easier to edit; last, parts of contractions
)


def highlight(
    index: Index, query: str, passages: Sequence[Sequence[Sequence[str]]]
) -> list[list[int]]:
    """The positions of the words to highlight in each passage, given as sentences of words.

    They are content words near a content word of the query. Words are compared as the index
    compares passages: their layers combined, then whitened.
    """
    texts = [index.config.tokenize(query), *passages]
    stream = index.embedder.embed_stream(
        (words for sentences in texts for words in sentences),
        layers=index.config.layers,
        show_progress_bar=False,
    )
    vocabulary = index.embedder.pretrained.vocabulary
    content, vectors = list[list[int]](), list[Vectors]()
    for sentences in texts:
        words = [word for sentence in sentences for word in sentence]
        content.append([n for n, word in enumerate(words) if is_content_word(word, vocabulary)])
        own = np.concatenate([next(stream)[0] for _ in sentences])
        vectors.append(index.whitening.transform(own[content[-1]]))
    return [
        _nearest_words(vectors[0], own, candidates)
        for own, candidates in zip(vectors[1:], content[1:], strict=True)
    ]


def is_content_word(word: str, vocabulary: Vocabulary | None = None) -> bool:
    """Whether a word has meaning of its own: no punctuation, and no stop word.

    Stop words are a list of English ones, and the most frequent words of the model's vocabulary.
    """
    folded = word.lower().replace("’", "'")
    if not is_word(word) or folded in ENGLISH_STOP_WORDS:
        return False
    if vocabulary is None or folded not in vocabulary:
        return True
    return len(vocabulary) <= _MOST_FREQUENT or int(vocabulary.ids([folded])[0]) >= _MOST_FREQUENT


def _nearest_words(query: Vectors, passage: Vectors, candidates: list[int]) -> list[int]:
    """The candidates nearest to a word of the query; vectors are (words, dim)."""
    if not len(query) or not candidates:
        return []
    best = (passage @ query.T).max(1)  # (candidates,)
    threshold = _SHARE_OF_BEST * max(float(best.max()), 0.0)
    return [n for n, cosine in zip(candidates, best, strict=True) if cosine >= threshold > 0]
