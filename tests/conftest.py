import os
from pathlib import Path

import jax
import pytest

MAPS = Path("/proc/self/maps")

# The folder `as_users` runs in a process of its own, with JAX as it comes: see test_as_users.py.
if "UNIBIO_TEST_AS_USERS" not in os.environ:
    # Accuracy is asserted in float64; tests of float32 ask for it by name. Promotion is never silent.
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    jax.config.update("jax_numpy_rank_promotion", "raise")
    # Nearly all of the time is compilation; without XLA's expensive passes it takes half. Examples run with them.
    jax.config.update("jax_disable_most_optimizations", True)


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
