"""Highlighting the content words of found passages that say what the query says."""

from collections.abc import Sequence

import numpy as np

from elmokit.pooling import Vectors, is_word
from elmokit.search.index import Index
from elmokit.vocab import Vocabulary

# Chosen by looking at good and poor results of the English model, in the sample's top layer and in
# layer 0 of Wikipedia. Verbs resemble any verb: what else is marked must also be what the query as
# a whole is about, nearly as much as the passage is.
_MIN_COSINE = 0.6  # with a word of the query
_SHARE_OF_SCORE = 0.75  # the cosine with the query, of the passage's
_MIN_COSINE_OF_SAME_WORD = 0.5  # below, it is used in another sense
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
    index: Index,
    query: str,
    query_vector: Vectors,
    passages: Sequence[Sequence[Sequence[str]]],
    scores: Sequence[float],
) -> list[list[int]]:
    """The positions of the words to highlight in each passage, given as sentences of words.

    They are content words that stand in the query too, or that are close to a content word of the
    query and to the query itself. Words are compared as the index compares passages: their layers
    combined, then whitened. `scores` are the passages' cosines with the query.
    """
    texts = [index.config.tokenize(query), *passages]
    stream = index.embedder.embed_stream(
        (words for sentences in texts for words in sentences),
        layers=index.config.layers,
        show_progress_bar=False,
    )
    vocabulary = index.embedder.pretrained.vocabulary
    content = list[tuple[list[int], list[str], Vectors]]()  # of each text
    for sentences in texts:
        words = [word for sentence in sentences for word in sentence]
        positions = [n for n, word in enumerate(words) if is_content_word(word, vocabulary)]
        vectors = np.concatenate([next(stream)[0] for _ in sentences])[positions]
        folded = [words[n].casefold() for n in positions]
        content.append((positions, folded, index.whitening.transform(vectors)))
    (_, query_words, query_vectors), *others = content
    highlighted = []
    for (positions, folded, vectors), score in zip(others, scores, strict=True):
        cosines = vectors @ query_vectors.T  # (words, words of the query)
        same = np.equal.outer(np.array(folded, object), np.array(query_words, object))
        is_close = (cosines >= _MIN_COSINE).any(1)
        is_close &= vectors @ query_vector >= _SHARE_OF_SCORE * score
        is_close |= (same & (cosines >= _MIN_COSINE_OF_SAME_WORD)).any(1)
        highlighted.append([n for n, close in zip(positions, is_close, strict=True) if close])
    return highlighted


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
