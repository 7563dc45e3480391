"""Processes that share a model answer as it does, and none is missed when one ends."""

import os
import pickle
import signal
import struct
import sys
import time
from contextlib import closing

import numpy as np
import pytest

from elmokit import errors
from elmokit.server import crew as crews
from elmokit.server.crew import Crew, usual_size
from elmokit.server.jobs import Job, embedding, scoring
from elmokit.server.line import Line, Ticket
from elmokit.server.sentences import Sentences
from waiting import is_running, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is shared on Linux")

SENTENCES = [[f"word{k}" for k in range(length)] for length in (1, 9, 3, 3, 17, 2, 30, 5)]
JOB = scoring(Sentences([["word1"]], [0]))


@pytest.fixture(scope="module")
def crew(language_model):
    with closing(Crew(language_model, 2)) as crew:
        yield crew


@pytest.fixture
def lone(language_model):
    """A crew of one, and whoever that is."""
    with closing(Crew(language_model, 1, seconds=2)) as crew:
        yield crew, crew.members[0]


@pytest.fixture(scope="module")
def shared(serving, language_model, crew):
    return serving(language_model, crew=crew)


def test_answers_have_the_bits_of_the_model_itself(shared, language_model):
    with shared.held():  # the model here is busy: only processes can answer
        told = shared.told("/embed", {"texts": SENTENCES})["sentences"]
        scored = shared.told("/score", {"texts": [SENTENCES[1]]})["sentences"][0]
        guessed = shared.told("/next", {"text": "word1", "k": 2})["predictions"]
        filled = shared.told("/fill", {"text": "word1 ___", "k": 2})["gaps"]
    for found, expected in zip(told, language_model.embed(SENTENCES), strict=True):
        np.testing.assert_array_equal(np.float32(found["vectors"]), expected)
    (score,) = language_model.score([SENTENCES[1]])
    np.testing.assert_allclose(scored["forward"], score.forward, rtol=1e-6)
    assert guessed[0]["word"] == language_model.next_words("word1", k=2)[0].word
    assert filled[0][0]["word"] == language_model.fill("word1 ___", k=2)[0][0].word


def test_what_waits_is_shared_among_those_that_are_idle():
    line = Line()
    for tokens in (5, 5, 5, 9, 30, 6):
        line.join(Ticket(Job(Sentences([], []), tokens, _fail), None))
    line.idle = 3
    assert _taken(line) == [5, 5, 5]
    line.idle = 2
    assert _taken(line) == [9]
    line.idle = 1
    assert [_taken(line), _taken(line), _taken(line)] == [[30], [6], []]
    assert not line.arrived.is_set()


def _taken(line):
    return [ticket.job.tokens for ticket in line.take(35)]


def test_one_that_ends_while_idle_is_replaced_before_anybody_notices(lone):
    _, member = lone
    (before,) = member.answer([JOB])
    first = member.number
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: not is_running(first))
    (after,) = member.answer([JOB])
    assert member.number != first
    np.testing.assert_array_equal(after.scores[0].forward, before.scores[0].forward)


def test_one_that_ends_while_it_computes_is_replaced_and_can_be_asked_again(lone, caplog):
    _, member = lone
    (error,) = member.answer([Job(Sentences([["a"]], [0]), 3, _die)])
    assert (error.status, error.retry_after) == (503, 1)
    assert "is given up" in caplog.text
    (after,) = member.answer([JOB])
    assert after.scores


def test_one_that_does_not_answer_is_ended(lone):
    _, member = lone
    stuck = member.number
    (error,) = member.answer([Job(Sentences([["a"]], [0]), 3, _hang)])
    assert error.status == 503
    wait_until(lambda: not is_running(stuck))
    (after,) = member.answer([JOB])
    assert after.scores


def test_one_that_stops_in_mid_answer_is_ended(lone):
    _, member = lone
    (error,) = member.answer([Job(Sentences([["a"]], [0]), 3, _say_half)])
    assert error.status == 503
    assert member.answer([JOB])[0].scores


def test_without_the_root_others_answer_and_one_that_ended_says_so(serving, language_model):
    with closing(Crew(language_model, 2, seconds=2)) as crew:
        service = serving(language_model, crew=crew)
        os.kill(crew._root, signal.SIGKILL)  # members end with it
        wait_until(lambda: not any(is_running(member.number) for member in crew.members))
        status, sentence = service.refused("/encode", {"texts": [["a"]]})
        assert (status, "has ended" in sentence) == (503, True)
        assert service.told("/health")


def test_where_no_other_can_be_made_the_next_batch_tries_again(lone, monkeypatch):
    crew, member = lone
    member.answer([Job(Sentences([["a"]], [0]), 3, _die)])
    with monkeypatch.context() as patched:
        patched.setattr(crew, "make_process", _no_memory)
        assert member.answer([JOB])[0].status == 503
    assert member.answer([JOB])[0].scores


def test_a_service_goes_on_when_its_only_process_ends(serving, language_model, lone):
    crew, member = lone
    service = serving(language_model, crew=crew)
    assert service.told("/encode", {"texts": [["a"]]})
    member._connection.close()  # as if it had ended in mid-answer
    assert service.told("/encode", {"texts": [["a"]]})


def test_after_the_end_nobody_is_asked_and_nobody_left(language_model):
    crew = Crew(language_model, 2)
    numbers = [member.number for member in crew.members]
    crew.close()
    wait_until(lambda: not any(map(is_running, numbers)))
    assert crew.members[0].answer([JOB])[0].status == 503


def test_a_job_that_fails_says_why(language_model, crew):
    good = embedding(language_model, Sentences([["a"]], [0]), "all", "both")
    bad = Job(Sentences([["a"]], [0]), 3, _fail)
    found, error = crew.members[0].answer([good, bad])
    assert found.vectors[0].shape == (3, 1, language_model.dim)
    assert "ZeroDivisionError" in str(error)


def _fail(embedder, jobs):
    return 1 / 0


def _die(embedder, jobs):
    os._exit(9)


def _say_half(embedder, jobs):
    """Say that much will come, and some of it."""
    (own,) = [
        fd for fd in range(3, 64) if os.path.realpath(f"/proc/self/fd/{fd}").find("socket:") > 0
    ]
    os.write(own, struct.pack("!i", 4096) + b"half")
    time.sleep(600)


def _hang(embedder, jobs):
    time.sleep(600)


def _no_memory(seconds):
    raise OSError("no other process could be made")


@pytest.mark.parametrize(
    "error",
    [errors.InputError("why"), errors.ServiceError("why", status=503, retry_after=2)],
)
def test_errors_travel(error):
    found = pickle.loads(pickle.dumps(error))
    assert (type(found), str(found), vars(found)) == (type(error), "why", vars(error))


def test_connections_that_were_open_when_processes_began_still_end(serving, language_model):
    service = serving(None)
    with service.connected() as early:
        early.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert early.recv(1000)
        with closing(Crew(language_model, 1)):
            early.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert b"alive" in b"".join(iter(lambda: early.recv(1000), b""))  # until the end


def test_a_gpu_has_one_process():
    assert usual_size("cuda") == 1
    assert 1 <= usual_size("cpu") <= 8


def test_other_systems_are_told(language_model, monkeypatch):
    monkeypatch.setattr(crews.sys, "platform", "win32")
    with pytest.raises(errors.InputError, match="on Linux only"):
        Crew(language_model, 2)
