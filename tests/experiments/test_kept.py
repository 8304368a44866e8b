"""Traced programs in the user's cache folder: found again, remade when damaged, done without where there is none."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unibio.experiments.kept import kept
from unibio.experiments.study import Options, over


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "unibio" / "traced"


def counting():
    traced = []

    def fn(x):
        traced.append(x)
        return 2 * x + 1

    return fn, traced


def test_a_program_is_traced_once_and_again_for_other_shapes(cache):
    fn, traced = counting()
    x = jnp.arange(3.0)
    for _ in range(2):
        np.testing.assert_array_equal(kept("double", fn, x)(x), [1.0, 3.0, 5.0])
    assert len(traced) == 1
    np.testing.assert_array_equal(kept("double", fn, x[:2])(x[:2]), [1.0, 3.0])
    assert len(traced) == 2
    assert len(list(cache.iterdir())) == 2


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b"", lambda b: b[:40] + bytes([b[40] ^ 1]) + b[41:]])
def test_a_damaged_program_is_traced_anew(cache, damage):
    fn, _ = counting()
    x = jnp.arange(3.0)
    kept("double", fn, x)
    (file,) = cache.iterdir()
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    np.testing.assert_array_equal(kept("double", fn, x)(x), [1.0, 3.0, 5.0])
    assert file.read_bytes()[32:] == whole[32:]


def test_without_a_folder_it_is_traced_every_time(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    x = jnp.arange(3.0)
    np.testing.assert_array_equal(kept("double", lambda x: 2 * x + 1, x)(x), [1.0, 3.0, 5.0])


@pytest.mark.parametrize("seeds", [1, 3, 4])
def test_halves_make_the_whole(cache, seeds):
    def run(a, key):
        return a * jax.random.uniform(key, (2,))

    made = over(f"halves-{seeds}", run, [(1.0,), (3.0,)], Options(seeds=seeds, seed=5))
    keys = jax.random.split(jax.random.key(5), seeds)
    expected = np.stack([jax.random.uniform(key, (2,)) for key in keys])
    np.testing.assert_allclose(made, np.stack([expected, 3 * expected]), rtol=1e-15)
