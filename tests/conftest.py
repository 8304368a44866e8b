"""Settings of every test."""

import os
import tempfile

# Workers and the processes that tests start share what they compile; every run begins with an empty cache.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    _cache = tempfile.TemporaryDirectory(prefix="unibio-tests-")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = _cache.name
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"

import jax

# Accuracy is asserted in float64; tests of float32 ask for it by name. Promotion is never silent.
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
# Nearly all of the time is compilation; without XLA's expensive passes it takes half. Examples run with them.
jax.config.update("jax_disable_most_optimizations", True)
