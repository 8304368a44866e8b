"""A checkpoint is not continued by another program, wherever the number lies that makes it another one.

Each way below hands a constant to f. It acts on the value everywhere ("start"), only for y beyond the constant, where
the run has not been yet ("later"), or where the run never comes ("never"). The constant stands in the traced program
in all three cases, so all are refused; what cannot be seen is a Python function that the program calls back.
"""

import argparse
import contextvars
import dataclasses
import enum
import functools
import json
import os
import sys
import types
import weakref
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unibio as ub

CONSTANT = 0.0  # set by one of the ways
VARIABLE = contextvars.ContextVar("constant", default=0.0)
KEY = jax.random.key(0)
VALUES = {"start": (1.0, 1.5), "later": (100.0, 3.0), "never": (1e6, 1e7)}
FORMS = {
    "start": lambda c, y: c * jnp.sum(jnp.sin(y)),
    "later": lambda c, y: -jnp.sum(jnp.where(y < c, y, c)),
    "never": lambda c, y: -jnp.sum(jnp.where(y < c, y, c)),
}


def from_global(c):
    globals()["CONSTANT"] = c
    return lambda: CONSTANT


def from_context_variable(c):
    VARIABLE.set(c)
    return VARIABLE.get


def from_environment(c):
    os.environ["UNIBIO_TEST_CONSTANT"] = str(c)
    return lambda: float(os.environ["UNIBIO_TEST_CONSTANT"])


def from_module(c):
    module: Any = types.ModuleType("settings_of_a_user")
    module.FACTOR = c
    sys.modules["settings_of_a_user"] = module
    return lambda: sys.modules["settings_of_a_user"].FACTOR


def from_executed_text(c):
    space: dict[str, Any] = {}
    exec(f"def value():\n    return {c!r}\n", space)
    return space["value"]


def from_default(c):
    def value(number=c):
        return number

    return value


def from_keyword_default(c):
    def value(*, number=c):
        return number

    return value


def from_class_attribute(c):
    class Settings:
        factor = c

    return lambda: Settings.factor


def from_inherited_attribute(c):
    class Base:
        factor = c

    class Settings(Base):
        pass

    return lambda: Settings().factor


def from_inherited_method(c):
    class Base:
        def value(self):
            return c

    class Settings(Base):
        pass

    return Settings().value


def from_overridden_method(c):
    class Base:
        def factor(self):
            raise NotImplementedError

        def value(self):
            return self.factor()

    class Settings(Base):
        def factor(self):
            return c

    return Settings().value


def from_slots(c):
    class Settings:
        __slots__ = ("factor",)
        factor: float

    made = Settings()
    made.factor = c
    return lambda: made.factor


def from_property(c):
    class Settings:
        @property
        def factor(self):
            return c

    return lambda: Settings().factor


def from_cached_property(c):
    class Settings:
        @functools.cached_property
        def factor(self):
            return c

    return lambda: Settings().factor


def from_descriptor(c):
    class Number:
        def __get__(self, instance, owner):
            return c

    class Settings:
        factor = Number()

    return lambda: Settings().factor


def from_getattr(c):
    class Settings:
        def __getattr__(self, name):
            return c

    return lambda: Settings().anything


def from_metaclass(c):
    class Meta(type):
        factor = c

    class Settings(metaclass=Meta):
        pass

    return lambda: Settings.factor


def from_static_method(c):
    class Settings:
        @staticmethod
        def value():
            return c

    return Settings.value


def from_class_method(c):
    class Settings:
        number = c

        @classmethod
        def value(cls):
            return cls.number

    return Settings.value


def from_dataclass(c):
    return functools.partial(getattr, dataclasses.make_dataclass("Settings", ["factor"])(c), "factor")


def from_frozen_dataclass(c):
    made = dataclasses.make_dataclass("Settings", ["factor"], frozen=True)(c)
    return lambda: made.factor


def from_enum(c):
    make: Any = enum.Enum
    return lambda: make("Settings", {"FACTOR": c}).FACTOR.value


class Pair(NamedTuple):
    name: str
    factor: float


def from_generator(c):
    numbers = [c]
    return lambda: next(number for number in numbers)


def from_weak_reference(c):
    class Settings:
        factor = c

    made = Settings()
    seen: Any = weakref.ref(made)
    return lambda made=made: seen().factor


def from_json(c):
    text = json.dumps({"factor": c})
    return lambda: json.loads(text)["factor"]


def from_nested_closure(c):
    def outer():
        def inner():
            return c

        return inner

    return lambda: outer()()


def from_lru_cache(c):
    return functools.lru_cache(lambda: c)


def from_operator(c):
    class Number:
        def __float__(self):
            return c

    made = Number()
    return lambda: float(made)


WAYS = {
    "a closure": lambda c: lambda: c,
    "a global": from_global,
    "a context variable": from_context_variable,
    "an environment variable": from_environment,
    "an attribute of a module": from_module,
    "executed text": from_executed_text,
    "a default": from_default,
    "a keyword default": from_keyword_default,
    "a class": from_class_attribute,
    "an inherited attribute": from_inherited_attribute,
    "an inherited method": from_inherited_method,
    "an overridden method": from_overridden_method,
    "slots": from_slots,
    "a property": from_property,
    "a cached property": from_cached_property,
    "a descriptor": from_descriptor,
    "__getattr__": from_getattr,
    "a metaclass": from_metaclass,
    "a static method": from_static_method,
    "a class method": from_class_method,
    "a dataclass": from_dataclass,
    "a frozen dataclass": from_frozen_dataclass,
    "an enum": from_enum,
    "a named tuple": lambda c: lambda pair=Pair("a", c): pair.factor,
    "argparse": lambda c: lambda args=argparse.Namespace(limit=c): args.limit,
    "a simple namespace": lambda c: lambda space=types.SimpleNamespace(limit=c): space.limit,
    "a dictionary": lambda c: lambda table={"limit": c}: table["limit"],
    "a nested dictionary": lambda c: lambda table={"a": [{"limit": c}]}: table["a"][0]["limit"],
    "a list": lambda c: lambda numbers=[0.0, c]: numbers[1],
    "a set": lambda c: lambda numbers={c}: max(numbers),
    "a partial": lambda c: functools.partial(float, c),
    "a generator": from_generator,
    "a weak reference": from_weak_reference,
    "JSON": from_json,
    "a nested closure": from_nested_closure,
    "a cache": from_lru_cache,
    "__float__": from_operator,
    "a function in a dictionary": lambda c: {"value": lambda: c}["value"],
    "an array of numpy": lambda c: lambda array=np.asarray([0.0, c]): array[1],
    "an array of JAX": lambda c: lambda array=jnp.asarray([0.0, c]): array[1],
}


def jitted(c, form):
    return jax.jit(lambda x, y, batch: FORMS[form](c, y))


def with_custom_jvp(c, form):
    """The value is always the same, the derivative has the constant."""

    @jax.custom_jvp
    def same(y):
        return jnp.sum(y)

    same.defjvp(lambda primals, tangents: (same(*primals), jax.jvp(lambda y: FORMS[form](c, y), primals, tangents)[1]))
    return lambda x, y, batch: same(y)


def with_custom_vjp(c, form):
    @jax.custom_vjp
    def same(y):
        return jnp.sum(y)

    def backward(y, ct):
        return (jax.tree.map(lambda leaf: leaf * ct, jax.grad(lambda y: FORMS[form](c, y))(y)),)

    same.defvjp(lambda y: (same(y), y), backward)
    return lambda x, y, batch: same(y)


class Static(eqx.Module):
    c: float = eqx.field(static=True)
    form: str = eqx.field(static=True)

    def __call__(self, x, y, batch):
        return FORMS[self.form](self.c, y)


class Leaf(eqx.Module):
    c: jax.Array
    form: str = eqx.field(static=True)

    def __call__(self, x, y, batch):
        return FORMS[self.form](self.c, y)


RULES = {
    "a jitted function": jitted,
    "a rule of its own, forward": with_custom_jvp,
    "a rule of its own, reverse": with_custom_vjp,
    "a static field": Static,
    "a leaf": lambda c, form: Leaf(jnp.asarray(c), form),
}


def of_way(way):
    def make(c, form):
        value = WAYS[way](c)
        return lambda x, y, batch: FORMS[form](value(), y)

    return make


PATTERNS = {name: of_way(name) for name in WAYS} | RULES
FORM_OF = dict(zip(PATTERNS, ["start", "later", "never"] * len(PATTERNS), strict=False))


def run(folder, f, steps):
    def g(x, y, batch):
        return jnp.sum((y - x) ** 2) / 2

    problem = ub.Problem(f, g, 2.0)
    keep = ub.Checkpoints(folder, every=20)
    return ub.solve(problem, ub.SOBA(0.01, 0.1), jnp.zeros(2), jnp.zeros(2), steps=steps, key=KEY, checkpoint=keep)


FAST = ("a global", "argparse", "slots", "an inherited method", "an enum", "a rule of its own, reverse")


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in PATTERNS]
)
def test_another_constant_is_refused(tmp_path, name):
    form = FORM_OF[name]
    before, after = VALUES[form]
    run(tmp_path, PATTERNS[name](before, form), 40)
    assert run(tmp_path, PATTERNS[name](before, form), 41).steps == 41  # the same one, made anew, goes on
    with pytest.raises(ValueError, match="belongs to another run"):
        run(tmp_path, PATTERNS[name](after, form), 60)


def test_a_docstring_is_no_other_program(tmp_path):
    def plain(x, y, batch):
        return jnp.sum(jnp.sin(y))

    def documented(x, y, batch):
        """The same with a word about it."""
        return jnp.sum(jnp.sin(y))

    run(tmp_path, plain, 40)
    assert run(tmp_path, documented, 60).steps == 60


@pytest.mark.parametrize(("limit", "refused"), [(3.0, False), (0.0, True)])
def test_what_is_called_back_is_seen_where_it_acts(tmp_path, limit, refused):
    """The program does not contain the Python function, so that only the probe can tell."""

    def calling(c):
        def value(y):
            return np.asarray(np.where(y < c, y, 0.25), y.dtype)

        @jax.custom_jvp
        def host(y):
            return jax.pure_callback(value, jax.ShapeDtypeStruct(y.shape, y.dtype), y)

        host.defjvp(lambda primals, tangents: (host(*primals), host(*primals) * tangents[0]))
        return lambda x, y, batch: jnp.sum(host(y))

    run(tmp_path, calling(100.0), 40)
    if refused:
        with pytest.raises(ValueError, match="belongs to another run: the next step from its state comes out"):
            run(tmp_path, calling(limit), 60)
    else:
        assert run(tmp_path, calling(limit), 60).steps == 60
