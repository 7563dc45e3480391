import pickle
from dataclasses import replace

import numpy as np
import pytest

import elmokit

pytest.importorskip("langchain_core", reason="langchain-core is not installed")

from langchain_core.vectorstores import InMemoryVectorStore

from elmokit.integrations.langchain import ElmoEmbeddings

TEXTS = ["A dog barked.", "Prices rose sharply.", "The hound howled.", ""]


def test_vectors_are_those_of_encode_and_a_store_finds_a_text_by_itself():
    model = elmokit.load()
    whitening = elmokit.Whitening.fit(model.encode(TEXTS, layers=0, pooling="idf"))
    embeddings = ElmoEmbeddings(whitening=whitening)
    expected = model.encode(TEXTS, layers=0, pooling="idf", whitening=whitening)
    np.testing.assert_allclose(embeddings.embed_documents(TEXTS), expected, atol=1e-6)
    np.testing.assert_allclose(embeddings.embed_query(TEXTS[0]), expected[0], atol=1e-6)
    store = InMemoryVectorStore.from_texts(TEXTS[:3], embeddings)
    assert [found.page_content for found in store.similarity_search(TEXTS[1], k=1)] == TEXTS[1:2]


def test_raw_vectors_have_length_1_and_a_pickle_is_small():
    embeddings = pickle.loads(pickle.dumps(ElmoEmbeddings(layers="mean", pooling="mean")))
    assert len(pickle.dumps(embeddings)) < 1000
    lengths = np.linalg.norm(embeddings.embed_documents(TEXTS), axis=1)
    np.testing.assert_allclose(lengths, [1, 1, 1, 0], atol=1e-6)


def test_a_pickle_refuses_another_model(model_folder):
    embeddings = pickle.loads(pickle.dumps(ElmoEmbeddings()))
    vars(embeddings)["_encoder"] = replace(embeddings._encoder, model=model_folder)
    with pytest.raises(elmokit.InputError, match="this embedding was made with another model"):
        embeddings.embed_query(TEXTS[0])
