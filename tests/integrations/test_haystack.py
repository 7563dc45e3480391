import pickle

import numpy as np
import pytest

import elmokit

pytest.importorskip("haystack", reason="haystack-ai is not installed")

from haystack import Document, Pipeline
from haystack.components.retrievers.in_memory import InMemoryEmbeddingRetriever
from haystack.components.writers import DocumentWriter
from haystack.document_stores.in_memory import InMemoryDocumentStore

from elmokit.integrations.haystack import ElmoDocumentEmbedder, ElmoTextEmbedder

TEXTS = ["A dog barked.", "Prices rose sharply.", "The hound howled.", ""]


@pytest.fixture(scope="module")
def whitening():
    return elmokit.Whitening.fit(elmokit.load().encode(TEXTS, layers=0, pooling="idf"))


def test_vectors_are_those_of_encode(whitening):
    expected = elmokit.load().encode(TEXTS, layers=0, pooling="idf", whitening=whitening)
    documents = [Document(content=text) for text in TEXTS]
    embedded = ElmoDocumentEmbedder(whitening=whitening).run(documents)["documents"]
    np.testing.assert_allclose([d.embedding for d in embedded], expected, atol=1e-6)
    assert [d.content for d in embedded] == TEXTS
    assert documents[0].embedding is None
    embedder = ElmoTextEmbedder(whitening=whitening)
    embedder.warm_up()
    np.testing.assert_allclose(embedder.run(TEXTS[1])["embedding"], expected[1], atol=1e-6)
    assert ElmoDocumentEmbedder().run([]) == {"documents": []}


def test_fields_stand_before_the_content():
    document = Document(content="barked.", meta={"who": "A dog", "year": None})
    embedder = ElmoDocumentEmbedder(
        meta_fields_to_embed=["who", "year", "nowhere"], embedding_separator=" "
    )
    (embedded,) = embedder.run([document])["documents"]
    assert embedded.embedding == ElmoTextEmbedder().run("A dog barked.")["embedding"]


def test_a_saved_pipeline_finds_a_text_by_itself_and_refuses_another_model(whitening, model_folder):
    store = InMemoryDocumentStore()
    indexing = Pipeline()
    indexing.add_component("embedder", ElmoDocumentEmbedder(whitening=whitening))
    indexing.add_component("writer", DocumentWriter(store))
    indexing.connect("embedder.documents", "writer.documents")
    saved = indexing.dumps()
    indexing.run({"embedder": {"documents": [Document(content=text) for text in TEXTS[:3]]}})
    loaded = Pipeline.loads(saved, allowed_modules=["elmokit.*"])
    assert loaded.dumps() == saved
    query = Pipeline()
    query.add_component("embedder", ElmoTextEmbedder(whitening=whitening))
    query.add_component("retriever", InMemoryEmbeddingRetriever(store, top_k=1))
    query.connect("embedder.embedding", "retriever.query_embedding")
    found = query.run({"embedder": {"text": TEXTS[1]}})["retriever"]["documents"]
    assert [document.content for document in found] == TEXTS[1:2]
    data = ElmoTextEmbedder(whitening=whitening).to_dict()
    assert ElmoTextEmbedder.from_dict(data).run(TEXTS[0]) == ElmoTextEmbedder(
        whitening=whitening
    ).run(TEXTS[0])
    data["init_parameters"]["model"] = str(model_folder)
    with pytest.raises(elmokit.InputError, match="this embedding was made with another model"):
        ElmoTextEmbedder.from_dict(data).run(TEXTS[0])


def test_text_and_documents_are_not_mixed_up():
    with pytest.raises(TypeError, match="ElmoDocumentEmbedder takes documents"):
        ElmoTextEmbedder().run([Document(content="A dog.")])
    with pytest.raises(TypeError, match="ElmoTextEmbedder takes a string"):
        ElmoDocumentEmbedder().run("A dog.")
    with pytest.raises(elmokit.InputError, match="layers is a ScalarMix, which cannot be saved"):
        ElmoTextEmbedder(layers=elmokit.ScalarMix(3)).to_dict()


def test_a_pickle_has_the_fingerprint():
    embedder = pickle.loads(pickle.dumps(ElmoTextEmbedder()))
    assert embedder.to_dict() == ElmoTextEmbedder().to_dict()
