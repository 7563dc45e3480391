import asyncio
import pickle

import numpy as np
import pytest

import elmokit

pytest.importorskip("llama_index.core", reason="llama-index-core is not installed")

from llama_index.core import Document, VectorStoreIndex
from llama_index.core.ingestion import IngestionPipeline

from elmokit.integrations.llama_index import ElmoEmbedding

TEXTS = ["A dog barked.", "Prices rose sharply.", "The hound howled.", ""]


@pytest.fixture(scope="module")
def whitening():
    return elmokit.Whitening.fit(elmokit.load().encode(TEXTS, layers=0, pooling="idf"))


def test_vectors_are_those_of_encode(whitening):
    embedding = ElmoEmbedding(whitening=whitening)
    expected = elmokit.load().encode(TEXTS, layers=0, pooling="idf", whitening=whitening)
    np.testing.assert_allclose(embedding.get_text_embedding_batch(TEXTS), expected, atol=1e-6)
    np.testing.assert_allclose(embedding.get_query_embedding(TEXTS[0]), expected[0], atol=1e-6)
    vectors = asyncio.run(embedding.aget_text_embedding_batch(TEXTS))
    np.testing.assert_allclose(vectors, expected, atol=1e-6)
    vector = asyncio.run(embedding.aget_query_embedding(TEXTS[1]))
    np.testing.assert_allclose(vector, expected[1], atol=1e-6)
    assert embedding.embed_batch_size == 256


def test_an_index_finds_a_text_by_itself(whitening):
    documents = [Document(text=text) for text in TEXTS[:3]]
    embedding = ElmoEmbedding(whitening=whitening)
    index = VectorStoreIndex.from_documents(documents, embed_model=embedding)
    (found,) = index.as_retriever(similarity_top_k=1).retrieve(TEXTS[1])
    assert found.text == TEXTS[1]
    assert found.score == pytest.approx(1, abs=1e-5)


def test_a_pipeline_computes_the_same_documents_once():
    pipeline = IngestionPipeline(transformations=[ElmoEmbedding()])
    documents = [Document(text=text, id_=text) for text in TEXTS[:2]]
    first = pipeline.run(documents=documents)
    assert len(pipeline.cache.cache.get_all(collection=pipeline.cache.collection)) == 1
    again = pipeline.run(documents=documents)
    assert len(pipeline.cache.cache.get_all(collection=pipeline.cache.collection)) == 1
    assert [node.embedding for node in first] == [node.embedding for node in again]


def test_what_is_saved_gives_the_same_vectors_and_refuses_another_model(whitening, model_folder):
    embedding = ElmoEmbedding(whitening=whitening, layers=0)
    expected = embedding.get_text_embedding(TEXTS[0])
    for copy in (
        ElmoEmbedding.from_json(embedding.to_json()),
        pickle.loads(pickle.dumps(embedding)),
    ):
        assert copy.fingerprint == elmokit.load().pretrained.fingerprint()
        assert copy.get_text_embedding(TEXTS[0]) == expected
        copy.model_name = str(model_folder)
        with pytest.raises(elmokit.InputError, match="this embedding was made with another model"):
            copy.get_text_embedding(TEXTS[0])
    assert len(pickle.dumps(ElmoEmbedding())) < 2000


def test_a_model_is_named_by_its_folder(model_folder):
    embedding = ElmoEmbedding(model_name=str(model_folder), layers=-1, pooling="max")
    expected = elmokit.load(model_folder).encode(
        TEXTS[:1], layers=-1, pooling="max", normalize_embeddings=True
    )
    np.testing.assert_allclose(embedding.get_text_embedding(TEXTS[0]), expected[0], atol=1e-6)
