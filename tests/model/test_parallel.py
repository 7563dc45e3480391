import threading

import pytest
import torch

from elmokit.model.parallel import side_by_side, using_threads


def test_jobs_run_in_threads_of_their_own_with_a_share_each():
    meeting = threading.Barrier(2, timeout=10)

    def job():
        meeting.wait()  # both are running
        return threading.get_ident(), torch.get_num_threads(), torch.is_grad_enabled()

    with using_threads(4):
        first, second = side_by_side([job, job])
        assert torch.get_num_threads() == 4
    assert first[0] != second[0]
    assert first[1:] == second[1:] == (2, False)


def test_torchs_settings_are_as_they_were():
    before = torch.get_num_threads()
    side_by_side([torch.get_num_threads] * 2)
    with using_threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("failing", [0, 1])
def test_a_job_that_fails_fails_the_call(failing):
    def fail():
        raise KeyError("broken")

    jobs = [lambda: 1, lambda: 2]
    jobs[failing] = fail
    before = torch.get_num_threads()
    with pytest.raises(KeyError, match="broken"):
        side_by_side(jobs)
    assert torch.get_num_threads() == before
