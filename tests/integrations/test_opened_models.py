"""The models that adapters open: what is computed once for all of their calls."""

import pickle

import elmokit
from elmokit.integrations import vector_stores
from elmokit.integrations.opened_models import OpenedModel
from elmokit.integrations.vector_stores import VectorStoreEncoder


def test_a_restored_encoder_hashes_the_weights_once(monkeypatch):
    model = elmokit.load()
    encoder = pickle.loads(pickle.dumps(VectorStoreEncoder()))
    opened = OpenedModel(model)
    monkeypatch.setattr(vector_stores, "open_once", lambda options: opened)
    compute, hashed = elmokit.Pretrained.fingerprint, []

    def fingerprint(self, pooling=None):
        hashed.append(pooling)
        return compute(self, pooling)

    monkeypatch.setattr(elmokit.Pretrained, "fingerprint", fingerprint)
    assert encoder.encode(["A dog."]) == encoder.encode(["A dog."])
    assert model.default_pooling in model.pretrained.heads
    assert hashed.count(model.default_pooling) == 1
