"""Helpers: unique names, a check of the installation, optional imports, profiling, curves."""

from fleetx.static.run.self_check import run_check
from paddle._version_check import require_version
from paddle.utils import download, profiler, unique_name
from paddle.utils.deprecated import deprecated
from paddle.utils.lazy_import import try_import
from paddle.utils.plot import Ploter
from paddle.utils.profiler import Profiler, ProfilerOptions, get_profiler

__all__ = ["Ploter", "Profiler", "ProfilerOptions", "deprecated", "download", "get_profiler"]
__all__ += ["profiler", "require_version", "run_check", "try_import", "unique_name"]
