"""What all tests share: how hypothesis runs, and which tests need a GPU."""

from __future__ import annotations

import importlib.util
import os
from functools import cache

import pytest
from command_line import answer, campaign, drawn, gemmsim, machine, points, refusal  # noqa: F401 - fixtures for all
from hypothesis import is_hypothesis_test, settings

settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.register_profile("fuzz", deadline=None, max_examples=int(os.environ.get("EXAMPLES") or 1000))
settings.load_profile("ci" if os.environ.get("CI") else "fuzz" if os.environ.get("EXAMPLES") else "default")


@cache
def why_no_gpu() -> str:
    """What this machine lacks to run a kernel; empty if nothing."""
    if importlib.util.find_spec("pycuda") is None:
        return "PyCUDA is not installed"
    try:
        import pycuda.driver

        pycuda.driver.init()
        return "" if pycuda.driver.Device.count() else "no GPU"
    except Exception as error:  # without a driver, importing PyCUDA fails in ways of its own
        return f"no GPU: {error}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker("property")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and why_no_gpu():
        pytest.skip(why_no_gpu())
