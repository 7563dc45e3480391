"""A query becomes the passages of an index nearest to it, or uses of a word, some words lit."""

from functools import partial
from itertools import accumulate

from elmokit.embedder import Embedder
from elmokit.errors import FormatError, InputError, ServiceError
from elmokit.pooling import Vectors
from elmokit.search.highlight import highlight
from elmokit.search.index import Index
from elmokit.search.store import Hit
from elmokit.server.desk import Desk
from elmokit.server.exchange import Exchange
from elmokit.server.forms import SearchForm, SearchResult
from elmokit.server.jobs import Job
from elmokit.server.limits import Limits
from elmokit.server.sentences import Sentences, check_characters
from elmokit.server.shelf import Shelf


async def find_passages(
    desk: Desk, shelf: Shelf, form: SearchForm, exchange: Exchange
) -> list[SearchResult]:
    """What is found, the nearest first. An index that was built again meanwhile is opened again."""
    index = shelf.index
    if index is None:
        raise InputError(
            "this service has no index; make one (elmo index build) and start the service "
            "with it (elmo serve --index DIR)"
        )
    if form.word is None and form.any_word:
        raise InputError("any_word was given without a word")
    check_characters(form.word or "", "word")

    async def find(embedder: Embedder) -> list[SearchResult]:
        try:
            return await _find(desk, index, form, embedder, exchange)
        except FormatError:
            opened = await desk.fetch(partial(shelf.open_again, index))
        try:
            return await _find(desk, opened, form, embedder, exchange)
        except FormatError as error:
            raise ServiceError(str(error), status=503, retry_after=1) from None

    return await desk.during(find)


async def _find(
    desk: Desk, index: Index, form: SearchForm, embedder: Embedder, exchange: Exchange
) -> list[SearchResult]:
    asked = await desk.aside(partial(Sentences.of, embedder, [form.query], desk.limits))
    query = await desk.read(embedder, lambda _: _encoding(index, form, asked), exchange)
    hits = await desk.fetch(partial(_nearest, index, form, query))
    if form.word is not None:
        return await desk.aside(lambda: [_use(index, hit) for hit in hits])
    lighting = await desk.aside(lambda: _lighting(index, form, asked, hits, desk.limits))
    return await desk.read(embedder, lambda _: lighting, exchange)


def _encoding(index: Index, form: SearchForm, asked: Sentences) -> Job[Vectors]:
    """The vector of a query, or of a word in it, each job by itself."""

    def answer(_: Embedder, __: list[Sentences]) -> list[Vectors]:
        if form.word is None:
            return [index.encode(form.query)]
        return [index.encode_word(form.word, form.query)]

    return Job(asked, asked.tokens, answer, travels=False)


def _nearest(index: Index, form: SearchForm, query: Vectors) -> list[Hit]:
    if form.word is None or form.any_word:
        return index.store.nearest(query, form.k)
    hits = index.store.nearest_occurrences(form.word, query, form.k)
    if not hits:
        raise InputError(f"{index.name}: {form.word!r} does not occur in the index")
    return hits


def _use(index: Index, hit: Hit) -> SearchResult:
    """The sentence of a use, the word itself lit."""
    words = [word for sentence in index.config.tokenize(hit.passage.text) for word in sentence]
    return _passage(hit, words, [place for place in [hit.passage.word_index] if place is not None])


def _lighting(
    index: Index, form: SearchForm, asked: Sentences, hits: list[Hit], limits: Limits
) -> Job[list[SearchResult]]:
    """The words of what was found, those near the query lit, each job by itself.

    Passages beyond the limit of words are not read, and none of their words is lit.
    """
    texts = [index.config.tokenize(hit.passage.text) for hit in hits]
    sizes = (sum(len(words) + 2 for words in sentences) for sentences in texts)
    tokens = [size for size in accumulate(sizes, initial=asked.tokens) if size <= limits.tokens]
    read = len(tokens) - 1

    def answer(_: Embedder, __: list[Sentences]) -> list[list[SearchResult]]:
        lit = highlight(index, form.query, hits[:read], max_words=limits.tokens)
        places = [*(own.highlighted for own in lit), *([] for _ in hits[read:])]
        words = ([word for sentence in sentences for word in sentence] for sentences in texts)
        return [[*map(_passage, hits, words, places)]]

    return Job(asked, tokens[-1], answer, travels=False)


def _passage(hit: Hit, words: list[str], lit: list[int]) -> SearchResult:
    found = hit.passage
    return SearchResult(
        id=found.id,
        score=hit.score,
        text=found.text,
        words=words,
        highlighted=lit,
        file=found.file,
        line=found.line,
        start=found.start,
        end=found.end,
    )
