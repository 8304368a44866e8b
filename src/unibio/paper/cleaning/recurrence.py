"""The derivative of a tanh recurrence as one linear operation, which is its own derivative and its own transpose.

    z_t = e_t + v_{t−1} W,    v_t = r_t + (1 − h_t²)∘z_t,    v_{−1} = 0        (`reverse`: t+1 for t−1, from the end)

maps (e, r) to (z, v), with h the states of the recurrence and W its weights. `jax.lax.scan` would do the same more
slowly, because its transpose fills memory with zeros first and then writes every state twice. This loop writes v into
the memory of e. Two rules express its derivatives by itself, so that JAX can differentiate it as often as it likes, in
forward and in reverse mode (a dot is a tangent, a bar a cotangent):

    derivative:  (ż, v̇) = sweep(h, W, ė + v_{t−1} Ẇ, ṙ − 2hḣ∘z), so that Ẇ enters as one large product, outside;
    transpose:   (r̄, ē) = sweep(h, Wᵀ, v̄, z̄) in the other direction.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

Arrays = list[jax.Array]
_sweep = Primitive("sweep")
_sweep.multiple_results = True


def sweep(h: jax.Array, w: jax.Array, e: jax.Array) -> jax.Array:
    """v of the recurrence above with r = 0. h and e have the shape (time, rows, hidden)."""
    return _sweep.bind(h, w, e, reverse=False)[1]


def product(states: jax.Array, w: jax.Array) -> jax.Array:
    """states @ W as one product of two matrices, which XLA runs faster than a batch of them."""
    if w.ndim > 2:
        return states @ w
    return (states.reshape(-1, states.shape[-1]) @ w).reshape(*states.shape[:-1], w.shape[-1])


def before(states: jax.Array, start: jax.Array | None = None, reverse: bool = False) -> jax.Array:
    """For every step the state before it; for the first one `start`, or 0. With `reverse` time runs backwards."""
    first = (jnp.zeros_like(states[0]) if start is None else start)[None]
    return jnp.concatenate([states[1:], first] if reverse else [first, states[:-1]])


def _loop(h: jax.Array, w: jax.Array, e: jax.Array, *r: jax.Array, reverse: bool) -> Arrays:
    last = h.shape[0] - 1

    def step(i: jax.Array, carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        v, z_all, v_all = carry
        t = last - i if reverse else i
        z = v_all[t] + v @ w  # v_all[t] still holds e_t: it is overwritten below
        v = (1 - h[t] * h[t]) * z
        if r:
            v = v + r[0][t]
        z_all = jax.lax.dynamic_update_index_in_dim(z_all, z, t, 0)  # XLA leaves this out if nobody uses z
        return v, z_all, jax.lax.dynamic_update_index_in_dim(v_all, v, t, 0)

    return list(jax.lax.fori_loop(0, h.shape[0], step, (jnp.zeros_like(e[0]), jnp.zeros_like(e), e))[1:])


def _jvp(primals: tuple[jax.Array, ...], tangents: tuple[Any, ...], *, reverse: bool) -> tuple[Arrays, Any]:
    h, w, *_ = primals
    dh, dw, de, *dr = [None if type(tangent) is ad.Zero else tangent for tangent in tangents]
    z, v = _sweep.bind(*primals, reverse=reverse)
    if dw is not None:
        de = _add(product(before(v, reverse=reverse), dw), de)
    r = dr[0] if dr else None
    if dh is not None:
        r = _add(-2 * h * dh * z, r)
    e = jnp.zeros_like(h) if de is None else de
    return [z, v], _sweep.bind(h, w, e, *([] if r is None else [r]), reverse=reverse)


def _add(term: jax.Array, others: jax.Array | None) -> jax.Array:
    return term if others is None else others + term


def _transpose(cotangents: tuple[Any, Any], h: jax.Array, w: jax.Array, *linear: Any, reverse: bool) -> list[Any]:
    dz, dv = cotangents
    e = jnp.zeros_like(h) if type(dv) is ad.Zero else dv
    found = _sweep.bind(h, w.mT, e, *([] if type(dz) is ad.Zero else [dz]), reverse=not reverse)
    sought = [found[1], found[0]][: len(linear)]
    return [None, None, *(v if ad.is_undefined_primal(x) else None for v, x in zip(sought, linear, strict=True))]


def _batch(operands: tuple[jax.Array, ...], axes: tuple[Any, ...], *, reverse: bool) -> tuple[Any, Any]:
    """vmap: the new axis becomes the first of w, and the one after time of all other arrays."""
    size = next(x.shape[axis] for x, axis in zip(operands, axes, strict=True) if axis is not None)
    h, w, *linear = (batching.bdim_at_front(x, axis, size) for x, axis in zip(operands, axes, strict=True))
    moved = (jnp.moveaxis(x, 0, 1) for x in linear)
    return _sweep.bind(jnp.moveaxis(h, 0, 1), w, *moved, reverse=reverse), [1, 1]


_sweep.def_impl(jax.jit(_loop, static_argnames="reverse"))
_sweep.def_abstract_eval(lambda h, w, e, *r, reverse: [e, e])
ad.primitive_jvps[_sweep] = _jvp
ad.primitive_transposes[_sweep] = _transpose
batching.primitive_batchers[_sweep] = _batch
mlir.register_lowering(_sweep, mlir.lower_fun(_loop, multiple_results=True))
