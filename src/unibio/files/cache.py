"""JAX as the command line uses it: float64, and compiled programs kept in the user's cache folder."""

import os
from pathlib import Path
from typing import Any

import jax


def set_up_jax() -> None:
    """Switches float64 on, and keeps compiled programs in the user's cache folder if that can be written."""
    config: Any = jax.config
    config.update("jax_enable_x64", True)
    if config.jax_compilation_cache_dir:  # the user has chosen one
        return
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "unibio"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # RuntimeError: a user without a home
        return
    if os.access(folder, os.W_OK | os.X_OK):
        config.update("jax_compilation_cache_dir", str(folder / "jax"))
        config.update("jax_persistent_cache_min_compile_time_secs", 0)
        config.update("jax_persistent_cache_min_entry_size_bytes", -1)
