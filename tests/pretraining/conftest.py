"""Fixtures of pretraining: a corpus and a finished run."""

import pytest

from elmokit.pretraining.corpus import Corpus
from elmokit.pretraining.trainer import pretrain
from random_models import make_corpus
from tiny_run import SENTENCES, TINY


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    return Corpus.open(make_corpus(folder, SENTENCES, valid=SENTENCES[:6], shards=2))


@pytest.fixture(scope="session")
def uninterrupted(corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("uninterrupted") / "run"
    pretrain(corpus, TINY, folder)
    return folder
