"""cuBLAS without cuBLAS: a library that is made up, with the arguments and the layout of the real one."""

from __future__ import annotations

import ctypes
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmsim.errors import MachineError
from gemmsim.gpu import cublas
from gemmsim.gpu.cublas import Cublas, candidates, loaded
from gemmsim.problem import Problem


class FakeGpu:
    driver = None


class FakeLibrary:
    """What of cuBLAS is used; matrices lie in this process's memory, columns first. Calls in `refused` fail."""

    def __init__(self, **refused):
        self.refused, self.calls = refused, []

    def __getattr__(self, name):
        def call(*arguments):
            self.calls.append((name, arguments))
            done = getattr(type(self), f"do_{name}", lambda *_: 0)
            return self.refused.get(name) or done(self, *arguments)

        return call

    def do_cublasGetProperty(self, which, to):  # noqa: N802
        to._obj.value = (13, 0, 2)[which.value]
        return 0

    def do_cublasSgemm_v2(self, handle, op_a, op_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):  # noqa: N802
        assert (op_a.value, op_b.value) == (0, 0)
        assert (alpha._obj.value, beta._obj.value) == (1, 0)
        m, n, k, lda, ldb, ldc = (each.value for each in (m, n, k, lda, ldb, ldc))
        if lda < m or ldb < k or ldc < m:
            return 7

        def floats(address, leading, columns):
            return (ctypes.c_float * (leading * columns)).from_address(address.value)

        of_a, of_b, of_c = floats(a, lda, k), floats(b, ldb, n), floats(c, ldc, n)
        for i in range(m):
            for j in range(n):
                of_c[i + j * ldc] = sum(of_a[i + x * lda] * of_b[x + j * ldb] for x in range(k))
        return 0


@given(m=st.integers(1, 6), n=st.integers(1, 6), k=st.integers(1, 6))
@pytest.mark.property
def test_the_product_is_row_major(m, n, k):
    a, b = (np.random.default_rng(1).random(shape, np.float32) for shape in ((m, k), (k, n)))
    c = np.zeros((m, n), np.float32)
    with Cublas(FakeGpu(), FakeLibrary()) as library:
        library.multiply(Problem(m, n, k), a.ctypes.data, b.ctypes.data, c.ctypes.data)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)


def test_the_math_is_fp32_and_the_handle_is_given_back():
    library = FakeLibrary()
    with Cublas(FakeGpu(), library) as present:
        assert present.version == "13.0.2"
    names = [name for name, _ in library.calls]
    assert names[:2] == ["cublasCreate_v2", "cublasSetMathMode"]
    assert library.calls[1][1][1].value == 0  # CUBLAS_DEFAULT_MATH
    assert names[-1] == "cublasDestroy_v2"


@pytest.mark.parametrize(
    ("status", "words"),
    [(1, "cublasCreate_v2 failed: not initialized"), (99, "cublasCreate_v2 failed: status 99")],
)
def test_what_the_library_refuses_is_one_line(status, words):
    with pytest.raises(MachineError, match=words) as caught, Cublas(FakeGpu(), FakeLibrary(cublasCreate_v2=status)):
        pass
    assert caught.value.exit_status == 3


def test_where_there_is_none_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(cublas, "candidates", lambda: iter(["libcublas-of-nowhere.so.13", "/nowhere/libcublas.so.13"]))
    with pytest.raises(
        MachineError, match=r"cuBLAS.* is not here .*; to get it: pip install 'gemmsim\[cublas\]'"
    ) as caught:
        loaded()
    assert caught.value.exit_status == 3
    assert "\n" not in str(caught.value)


def test_one_that_does_not_load_is_named(monkeypatch, tmp_path):
    broken = tmp_path / "libcublas.so.13"
    broken.write_bytes(b"nothing")
    (tmp_path / "libcublasLt.so.13").write_bytes(b"nothing")
    monkeypatch.setattr(cublas, "candidates", lambda: iter([str(broken)]))
    with pytest.raises(MachineError, match=r"does not load .*libcublas.*to get it"):
        loaded()


def test_nothing_from_outside_lowers_the_precision(monkeypatch):
    for name in cublas.TRUE_FP32:
        monkeypatch.setenv(name, "1")
    monkeypatch.setattr(cublas, "candidates", lambda: iter(()))
    with pytest.raises(MachineError):
        loaded()
    assert {name: os.environ[name] for name in cublas.TRUE_FP32} == dict.fromkeys(cublas.TRUE_FP32, "0")


def test_wheels_come_before_the_loader_and_new_before_old(monkeypatch, tmp_path):
    for folder, name in (("cu13", "libcublas.so.13"), ("cublas", "libcublas.so.12")):
        (tmp_path / folder / "lib").mkdir(parents=True)
        (tmp_path / folder / "lib" / name).touch()

    class Namespace:
        submodule_search_locations = (str(tmp_path),)

    monkeypatch.setattr(cublas.importlib.util, "find_spec", lambda name: Namespace())
    found = [path for path in candidates() if str(tmp_path) in path or "/" not in path]
    assert found == [
        str(tmp_path / "cu13" / "lib" / "libcublas.so.13"), "libcublas.so.13",
        str(tmp_path / "cublas" / "lib" / "libcublas.so.12"), "libcublas.so.12",
    ]  # fmt: skip
