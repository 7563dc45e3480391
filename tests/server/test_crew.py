"""Processes that share a model answer as it does, and none is missed when one ends."""

import multiprocessing
import os
import pickle
import signal
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from elmokit import errors
from elmokit.server.crew import Crew, usual_size
from elmokit.server.jobs import Job, embedding, scoring
from elmokit.server.line import Line, Ticket
from elmokit.server.sentences import Sentences

pytestmark = pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="processes are not forked here"
)

SENTENCES = [[f"word{k}" for k in range(length)] for length in (1, 9, 3, 3, 17, 2, 30, 5)]


@pytest.fixture(scope="module")
def crew(language_model):
    crew = Crew(language_model, 2)
    yield crew
    crew.close()


@pytest.fixture(scope="module")
def shared(serving, language_model, crew):
    return serving(language_model, crew=crew)


def test_answers_have_the_bits_of_the_model_itself(shared, language_model):
    def ask(sentence):
        return shared.told("/embed", {"texts": [sentence]})["sentences"][0]["vectors"]

    with ThreadPoolExecutor(len(SENTENCES)) as pool:
        found = list(pool.map(ask, SENTENCES))
    for vectors, expected in zip(found, language_model.embed(SENTENCES), strict=True):
        np.testing.assert_array_equal(np.float32(vectors), expected)
    (score,) = language_model.score([SENTENCES[1]])
    told = shared.told("/score", {"texts": [SENTENCES[1]]})["sentences"][0]
    np.testing.assert_allclose(told["forward"], score.forward, rtol=1e-6)


def test_what_waits_is_shared_among_those_that_are_idle():
    line = Line()
    for tokens in (5, 5, 5, 9, 30, 6):
        line.join(Ticket(Job(Sentences([], []), tokens, _fail), None))
    line.idle = 3
    assert [_taken(line)] == [[5, 5, 5]]
    line.idle = 2
    assert [_taken(line)] == [[9]]
    line.idle = 1
    assert [_taken(line), _taken(line), _taken(line)] == [[30], [6], []]
    assert not line.arrived.is_set()


def _taken(line):
    return [ticket.job.tokens for ticket in line.take(35)]


def test_one_that_ends_is_replaced_and_its_requests_can_be_asked_again(language_model):
    crew = Crew(language_model, 1)
    (member,) = crew.members
    job = scoring(Sentences([["word1"]], [0]))
    (before,) = member.answer([job])
    os.kill(member.pid, signal.SIGKILL)
    (error,) = member.answer([job])
    assert (error.status, error.retry_after) == (503, 1)
    (after,) = member.answer([job])
    np.testing.assert_array_equal(after.scores[0].forward, before.scores[0].forward)
    crew.close()
    assert member.pid not in [child.pid for child in multiprocessing.active_children()]


def test_a_job_that_fails_says_why(language_model, crew):
    member = crew.members[0]
    good = embedding(language_model, Sentences([["a"]], [0]), "all", "both")
    bad = Job(Sentences([["a"]], [0]), 3, _fail, "bad")
    found, error = member.answer([good, bad])
    assert found.vectors[0].shape == (3, 1, language_model.dim)
    assert "ZeroDivisionError" in str(error)


def _fail(embedder, jobs):
    return 1 / 0


@pytest.mark.parametrize("name", ["InputError", "FormatError", "NumericError"])
def test_errors_travel(name):
    error = pickle.loads(pickle.dumps(getattr(errors, name)("a sentence")))
    assert str(error) == "a sentence"


def test_connections_that_were_open_when_a_process_began_still_end(serving, language_model):
    service = serving(None)
    with service.connected() as early:
        early.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert early.recv(1000)
        crew = Crew(language_model, 1)
        early.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert b"alive" in b"".join(iter(lambda: early.recv(1000), b""))  # until the end
        crew.close()


def test_a_gpu_has_one_process():
    assert usual_size("cuda") == 1
    assert 1 <= usual_size("cpu") <= 8
