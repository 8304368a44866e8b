import os
import re
from pathlib import Path

import jax
import pytest

MAPS = Path("/proc/self/maps")
# Nearly all of the time is compilation. XLA's older code generator for fused loops, and one LLVM module instead of 32,
# take a quarter of its CPU time. XLA reads the variable when it compiles first; processes started by tests inherit it.
QUICK = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"

# The folder `as_users` runs in a process of its own, with JAX as it comes: see test_as_users.py.
if "UNIBIO_TEST_AS_USERS" not in os.environ:
    if QUICK not in os.environ.get("XLA_FLAGS", ""):  # a worker of pytest-xdist has inherited it
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {QUICK}".strip()
    # Accuracy is asserted in float64; tests of float32 ask for it by name. Promotion is never silent.
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    jax.config.update("jax_numpy_rank_promotion", "raise")
    # Without XLA's expensive passes compilation takes half. Programs that tests start run with them.
    jax.config.update("jax_disable_most_optimizations", True)

# What waits for processes of its own starts first, so that no worker is alone with it in the end.
FIRST = {
    "test_what_users_run",
    "test_two_processes",
    "test_scripts",
    "test_the_programs_of_the_readme_print_what_it_says",
}


def _name(nodeid):
    return nodeid.rpartition("::")[2].partition("[")[0]


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: _name(item.nodeid) not in FIRST)


def pytest_xdist_make_scheduler(config, log):
    """What shares compiled programs runs in one worker: the laws of one solver, and the tests of one file. (The marker
    `xdist_group` would say so too, but pytest-xdist 3.8 ignores it silently under pytest 9.)"""
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class SharedPrograms(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            file = nodeid.partition("::")[0]
            if _name(nodeid) in FIRST:
                return nodeid
            if file.endswith("test_laws.py"):
                solver = re.search(r"((?:MA-|BO-)?\w+)\]$", nodeid)
                return solver[1] if solver else nodeid
            return file

    config.option.loadscopereorder = False
    return SharedPrograms(config, log)


@pytest.fixture(autouse=True)
def _compilation_cache_off_again():
    """Commands that run in this process switch JAX's compilation cache on; writing to it has crashed later tests."""
    yield
    if jax.config.values["jax_compilation_cache_dir"]:
        from jax.experimental.compilation_cache import compilation_cache

        jax.config.update("jax_compilation_cache_dir", None)
        compilation_cache.reset_cache()


@pytest.fixture(autouse=True)
def _few_memory_maps():
    """Every compiled program maps memory, and Linux allows 65,530 maps to a process: beyond, XLA aborts."""
    yield
    if MAPS.exists() and MAPS.read_bytes().count(b"\n") > 30_000:
        jax.clear_caches()
