"""Tests of rows and tables run twice: with the compiled modules, and with their fallbacks."""

import pytest

from fleetx.kernels import compiled, index_in_numpy, native, rows_in_numpy


@pytest.fixture(scope="module", params=["compiled", "numpy"])
def implementation(request):
    """The implementation of the index and the row store during the tests of a module."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "numpy":
            for module in (index_in_numpy, rows_in_numpy):
                for name in native.__all__:
                    if hasattr(module, name):
                        patch.setattr(native, name, getattr(module, name))
        else:
            need_compiled_modules()
        yield request.param


@pytest.fixture(scope="session")
def compiled_modules():
    """The compiled modules themselves."""
    need_compiled_modules()
    from fleetx.kernels import _index, _rows

    return _index, _rows


def need_compiled_modules(*names):
    for name in names or ("fleetx.kernels._index", "fleetx.kernels._rows"):
        if reason := compiled.why_missing(name):
            pytest.skip(f"needs {name}: {reason}")
