"""Worker processes return what the model returns, and are replaced when they die."""

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
from elmokit.server import worker_processes
from elmokit.server.batcher import RequestQueue
from elmokit.server.model_calls import ModelCall, embed_call, score_call
from elmokit.server.worker_processes import WorkerPool, default_num_workers
from waiting import is_running, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is shared on Linux")

SENTENCES = [[f"word{k}" for k in range(length)] for length in (1, 9, 3, 3, 17, 2, 30, 5)]
CALL = score_call([["word1"]])


@pytest.fixture(scope="module")
def worker_pool(language_model):
    with closing(WorkerPool(language_model, 2)) as worker_pool:
        yield worker_pool


@pytest.fixture
def single_worker(language_model):
    """A pool of one worker, and that worker."""
    with closing(WorkerPool(language_model, 1, timeout_seconds=2)) as worker_pool:
        yield worker_pool, worker_pool.workers[0]


@pytest.fixture(scope="module")
def shared_service(start_service, language_model, worker_pool):
    return start_service(language_model, worker_pool=worker_pool)


def test_responses_have_the_bits_of_the_model_itself(shared_service, language_model):
    with shared_service.model_busy():  # the model in this process is busy
        embedded = shared_service.get_json("/embed", {"texts": SENTENCES})["sentences"]
        scored = shared_service.get_json("/score", {"texts": [SENTENCES[1]]})["sentences"][0]
        predicted = shared_service.get_json("/next", {"text": "word1", "k": 2})["predictions"]
        filled = shared_service.get_json("/fill", {"text": "word1 ___", "k": 2})["gaps"]
    for sentence, expected in zip(embedded, language_model.embed(SENTENCES), strict=True):
        np.testing.assert_array_equal(np.float32(sentence["vectors"]), expected)
    (score,) = language_model.score([SENTENCES[1]])
    np.testing.assert_allclose(scored["forward"], score.forward, rtol=1e-6)
    assert predicted[0]["word"] == language_model.next_words("word1", k=2)[0].word
    assert filled[0][0]["word"] == language_model.fill("word1 ___", k=2)[0][0].word


def test_pending_requests_are_shared_among_idle_workers():
    queue = RequestQueue()
    for tokens in (5, 5, 5, 9, 30, 6):
        queue.add(object(), ModelCall(_fail, None, tokens))
    queue.num_idle = 3
    assert _taken(queue) == [5, 5, 5]
    queue.num_idle = 2
    assert _taken(queue) == [9]
    queue.num_idle = 1
    assert [_taken(queue), _taken(queue), _taken(queue)] == [[30], [6], []]
    assert not queue.has_requests.is_set()


def _taken(queue):
    return [call.num_tokens for _, call in queue.take_batch(35)]


def test_a_worker_that_dies_while_idle_is_replaced_unnoticed(single_worker):
    _, worker = single_worker
    (before,) = worker.run_calls([CALL])
    first = worker.pid
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: not is_running(first))
    (after,) = worker.run_calls([CALL])
    assert worker.pid != first
    np.testing.assert_array_equal(after[0].forward, before[0].forward)


def test_a_worker_that_dies_while_it_computes_is_replaced_for_the_next_batch(single_worker, caplog):
    _, worker = single_worker
    (error,) = worker.run_calls([ModelCall(_die, None, 3)])
    assert (error.status, error.retry_after) == (503, 1)
    assert "is given up" in caplog.text
    (after,) = worker.run_calls([CALL])
    assert after[0].words


def test_a_worker_that_hangs_is_killed(single_worker):
    _, worker = single_worker
    hanging_pid = worker.pid
    (error,) = worker.run_calls([ModelCall(_hang, None, 3)])
    assert error.status == 503
    wait_until(lambda: not is_running(hanging_pid))
    (after,) = worker.run_calls([CALL])
    assert after[0].words


def test_a_worker_that_hangs_in_the_middle_of_a_reply_is_killed(single_worker):
    _, worker = single_worker
    (error,) = worker.run_calls([ModelCall(_send_half, None, 3)])
    assert error.status == 503
    assert worker.run_calls([CALL])[0][0].words


def test_without_the_root_requests_are_503_and_the_service_lives_on(start_service, language_model):
    with closing(WorkerPool(language_model, 2, timeout_seconds=2)) as worker_pool:
        service = start_service(language_model, worker_pool=worker_pool)
        os.kill(worker_pool._root_pid, signal.SIGKILL)  # workers die with it
        wait_until(lambda: not any(is_running(worker.pid) for worker in worker_pool.workers))
        status, message = service.get_error("/encode", {"texts": [["a"]]})
        assert (status, "has ended" in message) == (503, True)
        assert service.get_json("/health")


def test_where_no_process_can_be_started_the_next_batch_tries_again(single_worker, monkeypatch):
    worker_pool, worker = single_worker
    worker.run_calls([ModelCall(_die, None, 3)])
    with monkeypatch.context() as patched:
        patched.setattr(worker_pool, "start_process", _no_memory)
        assert worker.run_calls([CALL])[0].status == 503
    assert worker.run_calls([CALL])[0][0].words


def test_a_service_goes_on_when_its_only_process_ends(start_service, language_model, single_worker):
    worker_pool, worker = single_worker
    service = start_service(language_model, worker_pool=worker_pool)
    assert service.get_json("/encode", {"texts": [["a"]]})
    worker._connection.close()  # as if it had died in the middle of a reply
    assert service.get_json("/encode", {"texts": [["a"]]})


def test_a_closed_pool_leaves_no_process(language_model):
    worker_pool = WorkerPool(language_model, 2)
    pids = [worker.pid for worker in worker_pool.workers]
    worker_pool.close()
    wait_until(lambda: not any(map(is_running, pids)))
    assert worker_pool.workers[0].run_calls([CALL])[0].status == 503


def test_a_call_that_fails_says_why(language_model, worker_pool):
    good = embed_call(language_model, [["a"]], "all", "both")
    bad = ModelCall(_fail, None, 3)
    vectors, error = worker_pool.workers[0].run_calls([good, bad])
    assert vectors[0].shape == (3, 1, language_model.dim)
    assert "ZeroDivisionError" in str(error)


def _fail(embedder, argument):
    return 1 / 0


def _die(embedder, argument):
    os._exit(9)


def _send_half(embedder, argument):
    """Announce a long reply and send its beginning."""
    (connection,) = [
        fd for fd in range(3, 64) if os.path.realpath(f"/proc/self/fd/{fd}").find("socket:") > 0
    ]
    os.write(connection, struct.pack("!i", 4096) + b"half")
    time.sleep(600)


def _hang(embedder, argument):
    time.sleep(600)


def _no_memory(seconds):
    raise OSError("no other process could be made")


@pytest.mark.parametrize(
    "error",
    [errors.InputError("why"), errors.ServiceError("why", status=503, retry_after=2)],
)
def test_errors_can_be_pickled(error):
    unpickled = pickle.loads(pickle.dumps(error))
    assert (type(unpickled), str(unpickled), vars(unpickled)) == (type(error), "why", vars(error))


def test_connections_open_when_workers_start_still_end(start_service, language_model):
    service = start_service(None)
    with service.open_socket() as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.recv(1000)
        with closing(WorkerPool(language_model, 1)):
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert b"alive" in b"".join(iter(lambda: connection.recv(1000), b""))  # until the end


def test_a_gpu_is_used_by_one_process():
    assert default_num_workers("cuda") == 1
    assert 1 <= default_num_workers("cpu") <= 8


def test_other_systems_are_refused(language_model, monkeypatch):
    monkeypatch.setattr(worker_processes.sys, "platform", "win32")
    with pytest.raises(errors.InputError, match="on Linux only"):
        WorkerPool(language_model, 2)
