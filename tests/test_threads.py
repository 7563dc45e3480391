import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info

import elmokit
from elmokit import LoadOptions, threads
from elmokit.model import bilm
from elmokit.model.bilm import LanguageModel
from elmokit.model.softmax import Softmax
from elmokit.plots import project_pca
from elmokit.threads import (
    allowed_threads,
    cgroup_cpus,
    native_threads,
    run_side_by_side,
    torch_threads,
    usable_cpus,
    using_threads,
)
from elmokit.whitening import Whitening
from random_models import SIZES


def test_jobs_run_in_threads_of_their_own_without_gradients():
    meeting = threading.Barrier(2, timeout=10)

    def job():
        meeting.wait()  # both are running
        ident, grad = threading.get_ident(), torch.is_grad_enabled()
        return ident, torch.get_num_threads(), allowed_threads(), grad

    with using_threads(4):
        first, second = run_side_by_side([job, job])
        assert allowed_threads() == 4
    assert first[0] != second[0]
    assert first[1:] == second[1:] == (1, 1, False)


def test_no_more_threads_run_than_allowed():
    with using_threads(1):
        idents = run_side_by_side([threading.get_ident] * 5)
    assert set(idents) == {threading.get_ident()}


def test_results_come_in_the_order_of_jobs():
    with using_threads(3):
        assert run_side_by_side([lambda n=n: n for n in range(50)]) == [*range(50)]
        assert run_side_by_side([]) == []


def test_worker_threads_are_reused():
    meeting = threading.Barrier(2, timeout=10)

    def job():
        meeting.wait()  # both are running
        return threading.get_ident()

    with using_threads(2):
        idents = [ident for _ in range(50) for ident in run_side_by_side([job] * 2)]
    assert len({*idents}) < 50


def test_torchs_settings_are_restored():
    with torch_threads(3):
        with using_threads(2):
            assert torch.get_num_threads() == 1
            run_side_by_side([torch.get_num_threads] * 4)
            with torch_threads(2):
                assert torch.get_num_threads() == 2
        assert torch.get_num_threads() == 3
        in_new_thread = ThreadPoolExecutor(1).submit(torch.get_num_threads).result()
        assert in_new_thread == 3
    assert torch.is_grad_enabled()


def test_a_new_thread_has_the_users_setting():
    def begin_and_end():
        with using_threads(None):
            allowed.append(allowed_threads())
        return torch.get_num_threads()

    allowed: list[int] = []
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with using_threads(1), ThreadPoolExecutor(1) as pool:
            assert torch.get_num_threads() == 1
            assert pool.submit(begin_and_end).result() == 2
    finally:
        torch.set_num_threads(before)
    assert allowed == [min(2, usable_cpus())]


def test_none_changes_no_number_of_threads():
    with using_threads(3), using_threads(None):
        assert allowed_threads() == 3


def blas_threads():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def test_native_threads_are_limited_inside_the_block_alone():
    before = blas_threads(), torch.get_num_threads()
    with native_threads(2):
        assert blas_threads() == {2}
        with native_threads(1):
            assert blas_threads() == {1}
        assert blas_threads() == {2}
    assert (blas_threads(), torch.get_num_threads()) == before


def test_blocks_of_native_threads_run_one_at_a_time():
    def limited(threads):
        with native_threads(threads):
            time.sleep(0.05)
            return blas_threads()

    before = blas_threads()
    with ThreadPoolExecutor(3) as pool:
        assert [*pool.map(limited, [1, 2, 1])] == [{1}, {2}, {1}]
    assert blas_threads() == before


@pytest.mark.parametrize(("function", "run"), [
    ("eigh", Whitening.fit), ("svd", project_pca),
])  # fmt: skip
def test_what_has_many_small_steps_runs_in_one_native_thread(function, run, monkeypatch):
    original, threads_during = getattr(np.linalg, function), []

    def recording(*arguments, **options):
        threads_during.append(blas_threads())
        return original(*arguments, **options)

    monkeypatch.setattr(np.linalg, function, recording)
    run(np.random.default_rng(0).standard_normal((20, 4)).astype(np.float32))
    assert threads_during == [{1}]


def test_torchs_setting_is_the_maximum():
    with torch_threads(1):
        assert allowed_threads() == 1
    with torch_threads(1000):
        assert allowed_threads() == usable_cpus()


@pytest.mark.parametrize("failing", [0, 1])
def test_a_failing_job_fails_the_call(failing):
    def fail():
        raise KeyError("broken")

    jobs = [lambda: 1, lambda: 2]
    jobs[failing] = fail
    before = torch.get_num_threads()
    with using_threads(2), pytest.raises(KeyError, match="broken"):
        run_side_by_side(jobs)
    assert torch.get_num_threads() == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="only POSIX forks")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_starts_its_own_threads():
    with using_threads(2):
        run_side_by_side([lambda: 1] * 2)
        if (child := os.fork()) == 0:
            status = 1
            try:
                meeting = threading.Barrier(2, timeout=10)
                run_side_by_side([meeting.wait] * 2)
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_usable_cpus_follow_the_affinity(monkeypatch):
    monkeypatch.setattr(threads, "_quota", lambda: float("inf"))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 4, 5}, raising=False)
    assert usable_cpus() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert usable_cpus() == 7


@pytest.mark.parametrize(("quota", "cpus"), [(2.5, 2), (0.3, 1), (64.0, 8)])
def test_usable_cpus_follow_the_quota(monkeypatch, quota, cpus):
    monkeypatch.setattr(threads, "_quota", lambda: quota)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert usable_cpus() == cpus


@pytest.mark.parametrize(
    ("membership", "files", "cpus"),
    [
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 1.5),
        ("0::/\n", {"cpu.max": "max 100000\n"}, float("inf")),
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "300000 100000\n"}, 3),
        ("0::/a/b\n", {"a/b/cpu.max": "100000 100000\n", "a/cpu.max": "300000 100000\n"}, 1),
        ("0::/not/mounted\n", {"cpu.max": "50000 100000\n"}, 0.5),
        (
            "3:cpuset:/\n2:cpu,cpuacct:/docker/1\n1:name=systemd:/\n",
            {
                "cpu,cpuacct/docker/1/cpu.cfs_quota_us": "400000\n",
                "cpu,cpuacct/docker/1/cpu.cfs_period_us": "100000\n",
                "cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
                "cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            },
            4,
        ),
        ("1:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ("0::/\n", {"cpu.max": "nonsense\n"}, None),
        ("0::/\n", {}, None),
    ],
)
def test_quotas_are_read_from_cgroups(tmp_path, membership, files, cpus):
    for name, text in {"own": membership, **{f"fs/{k}": v for k, v in files.items()}}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert cgroup_cpus(tmp_path / "fs", tmp_path / "own") == (cpus or float("inf"))


def test_without_cgroups_there_is_no_quota(tmp_path):
    assert cgroup_cpus(tmp_path, tmp_path / "missing") == float("inf")


@pytest.mark.full
@pytest.mark.parametrize(("state", "directions"), [("carry", "both"), ("zero", "forward")])
def test_groups_of_sentences_read_at_the_same_time_keep_their_bits(state, directions, monkeypatch):
    torch.manual_seed(0)
    pretrained = elmokit.Pretrained(LanguageModel(elmokit.BiLM(SIZES["small"])))
    sentences = [[f"word{n}" for n in range(size % 7 + 9)] for size in range(80)]
    expected = elmokit.Embedder(pretrained, elmokit.LoadOptions(threads=1, state=state))
    model, pieces = elmokit.Embedder(pretrained, elmokit.LoadOptions(threads=4, state=state)), []

    def run(jobs):
        pieces.append(len(jobs))
        return run_side_by_side(jobs)

    monkeypatch.setattr(bilm, "run_side_by_side", run)
    for _ in range(2):  # with carry, the second call starts from another state than zero
        vectors = model.embed(sentences, directions=directions)
        wanted = expected.embed(sentences, directions=directions)
        for one, other in zip(vectors, wanted, strict=True):
            np.testing.assert_array_equal(one, other)
    assert 4 in pieces
    assert torch.equal(model.state.hidden, expected.state.hidden)
    assert torch.equal(model.state.cell, expected.state.cell)


@pytest.mark.full
@pytest.mark.parametrize("own", [1, 2, 3])
def test_bits_do_not_depend_on_the_number_of_threads(own):
    torch.manual_seed(0)
    pretrained = elmokit.Pretrained(LanguageModel(elmokit.BiLM(SIZES["small"])))
    generator = np.random.default_rng(0)
    sentences = [
        [f"word{n}" for n in generator.integers(200, size=size)]
        for size in generator.integers(1, 30, size=40)
    ]
    expected = elmokit.Embedder(pretrained, LoadOptions(threads=1)).embed(sentences)
    for allowed in (1, 2, 4):
        with torch_threads(own):
            actual = elmokit.Embedder(pretrained, LoadOptions(threads=allowed)).embed(sentences)
        for one, other in zip(actual, expected, strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_full_softmax_has_the_same_bits_in_any_number_of_threads():
    softmax, vectors = Softmax(30_000, 128), torch.randn(300, 128)
    targets = torch.arange(300)
    actual = []
    for allowed in (1, 2, 3):
        with ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            stack.enter_context(using_threads(allowed))
            actual.append((softmax(vectors), softmax.log_likelihood(vectors, targets)))
    for whole, chosen in actual[1:]:
        assert torch.equal(whole, actual[0][0])
        assert torch.equal(chosen, actual[0][1])
    picked = actual[0][0].gather(1, targets[:, None])[:, 0]
    torch.testing.assert_close(actual[0][1], picked)
    torch.testing.assert_close(actual[0][0], softmax(vectors).detach())
