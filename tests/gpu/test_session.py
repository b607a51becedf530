"""The context on the present GPU: made in the thread that enters, popped exactly once, whatever happens."""

from __future__ import annotations

import threading

import pytest

from gemmsim.errors import MachineError
from gemmsim.gpu.session import Gpu

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]  # PyCUDA's own warnings are not ours


def current():
    import pycuda.driver

    return pycuda.driver.Context.get_current()


def test_the_context_is_current_inside_and_gone_after():
    before = current()
    with Gpu() as gpu:
        assert current() is not None
        assert gpu.alive()
        assert gpu.facts.sms > 0
        assert gpu.facts.l2_bytes > 0
    assert current() == before


def test_an_error_inside_leaves_no_context():
    before = current()

    def fail():
        with Gpu():
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert current() == before


def test_contexts_can_be_nested():
    with Gpu() as outer:
        of_outer = current()
        with Gpu() as inner:
            assert current() != of_outer
            assert inner.alive()
        assert current() == of_outer
        assert outer.alive()


def test_another_thread_gets_one_explanation():
    caught: list[Exception] = []

    def use(gpu: Gpu) -> None:
        try:
            gpu.alive()
        except MachineError as error:
            caught.append(error)

    with Gpu() as gpu:
        thread = threading.Thread(target=use, args=(gpu,))
        thread.start()
        thread.join()
    assert len(caught) == 1
    assert "another thread" in str(caught[0])


def test_another_thread_can_have_a_gpu_of_its_own():
    alive: list[bool] = []

    def use() -> None:
        with Gpu() as gpu:
            alive.append(gpu.alive())

    with Gpu() as gpu:
        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
        assert gpu.alive()
    assert alive == [True]


def test_after_the_end_it_cannot_be_used():
    gpu = Gpu()
    with pytest.raises(MachineError, match="with Gpu"):
        _ = gpu.driver
    with gpu:
        pass
    with pytest.raises(MachineError, match="with Gpu"):
        gpu.alive()
    with gpu:  # and entered again
        assert gpu.alive()


def test_a_gpu_that_is_not_there():
    with pytest.raises(MachineError, match="no GPU number 99"), Gpu(99):
        pass
