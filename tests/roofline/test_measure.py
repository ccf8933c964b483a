"""Measuring a machine: what is counted is exact, what is timed is only positive, and PyTorch's threads are put back."""

from __future__ import annotations

import pytest

from mini_engine.roofline.measure import MachineRates, Measured, best_seconds, measure_rates, one_thread


def test_intensity_rate_and_ridge():
    work = Measured("work", flops=600, bytes=200, seconds=0.5)
    assert (work.intensity, work.rate) == (3, 1200)
    assert MachineRates(flops=90.0, bandwidth=30.0).ridge == 3


def test_rates_are_positive_and_threads_are_put_back():
    import torch

    before = torch.get_num_threads()
    rates = measure_rates(size=64, read_bytes=1 << 16, repeats=1)
    assert rates.flops > 0
    assert rates.bandwidth > 0
    assert torch.get_num_threads() == before


def test_threads_are_put_back_after_an_error():
    import torch

    before = torch.get_num_threads()
    threads = []

    def fails():
        with one_thread():
            threads.append(torch.get_num_threads())
            raise RuntimeError("inside")

    try:
        for number in (1, 2):
            torch.set_num_threads(number)
            with pytest.raises(RuntimeError, match="inside"):
                fails()
            assert torch.get_num_threads() == number
    finally:
        torch.set_num_threads(before)
    assert threads == [1, 1]


def test_the_first_call_warms_up_and_the_best_of_the_others_counts():
    calls = []
    assert best_seconds(lambda: calls.append(None), repeats=4) > 0
    assert len(calls) == 5


@pytest.mark.parametrize(("seconds", "best"), [([9, 5, 3, 4], 3), ([1, 8, 6], 6), ([2, 0, 1], 1e-9)])
def test_of_these_times_the_first_does_not_count_and_the_least_is_taken(monkeypatch, seconds, best):
    times = iter([time for i, spent in enumerate(seconds) for time in (100 * i, 100 * i + spent)])
    monkeypatch.setattr("time.thread_time", lambda: next(times))
    assert best_seconds(lambda: None, repeats=len(seconds) - 1) == best


@pytest.mark.parametrize("bad", [{"size": 0}, {"read_bytes": 0}, {"repeats": 0}, {"size": 1.5}])
def test_bad_arguments_are_named(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        measure_rates(**bad)
