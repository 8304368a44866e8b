"""What the studies share: seeds in two halves, and JAX's compilation cache in the user's folder."""

import jax
import numpy as np
import pytest

from unibio.files.cache import set_up_jax
from unibio.paper.framework.study import Options, over


@pytest.mark.parametrize("seeds", [1, 3, 4])
def test_halves_make_the_whole(seeds):
    def curve(a, key):
        return a * jax.random.uniform(key, (2,))

    made = over(curve, [(1.0,), (3.0,)], Options(seeds=seeds, seed=5))
    keys = jax.random.split(jax.random.key(5), seeds)
    expected = np.stack([jax.random.uniform(key, (2,)) for key in keys])
    np.testing.assert_allclose(made, np.stack([expected, 3 * expected]), rtol=1e-15)


@pytest.mark.parametrize("writable", [True, False])
def test_compiled_programs_are_saved_where_that_is_possible(tmp_path, monkeypatch, writable):
    (tmp_path / "file").touch()
    where = tmp_path if writable else tmp_path / "file"
    monkeypatch.setenv("XDG_CACHE_HOME", str(where))
    before = jax.config.values["jax_compilation_cache_dir"]
    try:
        jax.config.update("jax_compilation_cache_dir", None)
        set_up_jax()
        assert jax.config.values["jax_compilation_cache_dir"] == (
            str(tmp_path / "unibio" / "jax") if writable else None
        )
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
