"""What an object that is handed to the library must be able to do, and the one check of it.

A *kind* of object is a protocol: `LowerSolver`, `Hypergradient`, `Metric`, … `is_a` compares an argument with the
methods of the protocol before anything is compiled: each must be there and take as many arguments. Kinds that are
called with the same number of arguments, such as `Hypergradient` and `LowerSolver`, are told apart by the names of
these arguments: an object is refused if its names are those of another kind. Other names of a user's own are fine.
"""

import functools
import inspect
import weakref
from typing import TypeVar

import equinox as eqx

Kind = TypeVar("Kind", bound=type)
Methods = dict[str, tuple[str, ...]]  # the arguments of each method, without self

_PARTS: dict[type, Methods] = {}
_CALLED = ("__call__",)
_SOUND: weakref.WeakKeyDictionary[type, set[type]] = weakref.WeakKeyDictionary()  # classes, and what their objects are


def part(protocol: Kind) -> Kind:
    """Declares a protocol to be one of the parts that solvers and methods consist of. Such an object must be an equinox
    Module, because its numbers are arguments of compiled programs."""
    _PARTS[protocol] = _methods(protocol)
    return protocol


def is_a(name: str, value: object, protocol: type, choices: str) -> None:
    """Raises a TypeError unless `value` is an object of the kind that `protocol` describes. `choices` says in words
    what the argument of this name may be."""
    fault = _fault(value, protocol)
    if fault:
        own = ", or an equinox Module of your own" if protocol in _PARTS else ""
        shown = repr(value)
        shown = shown if len(shown) < 300 else f"{shown[:300]}…"
        raise TypeError(f"{name} must be {choices}{own}; got {shown}, {fault}.")


def fits(value: object, protocol: type) -> bool:
    """Whether `value` is an object of that kind."""
    return not _fault(value, protocol)


def _fault(value: object, protocol: type) -> str:
    """Why the value is no object of that kind, in words that follow on its name; "" if it is one.

    Whether a Module can be called so depends on its class alone, which is looked at once."""
    cls = type(value)
    if protocol in _SOUND.get(cls, ()):
        return ""
    fault = _fault_of(value, protocol)
    if not fault and isinstance(value, eqx.Module) and tuple(_methods(protocol)) == _CALLED:
        _SOUND.setdefault(cls, set()).add(protocol)
    return fault


def _fault_of(value: object, protocol: type) -> str:
    if isinstance(value, type):
        return "which is a class: make an instance of it"
    for method, arguments in _methods(protocol).items():
        called = _method(value, method)
        if not callable(called):
            return "which cannot be called" if method == "__call__" else f"which has no method {method}"
        if not _takes(called, len(arguments)):
            return f"which cannot be called with {len(arguments)} arguments ({', '.join(arguments)})"
    if protocol not in _PARTS:
        return ""
    for other, methods in _PARTS.items():
        if other is not protocol and _is_named_like(value, methods) and not _is_named_like(value, _PARTS[protocol]):
            return f"which is a {other.__name__}"
    return "" if isinstance(value, eqx.Module) else "which is no equinox Module"


@functools.cache
def _methods(protocol: type) -> Methods:
    """The methods that a protocol asks for, with their arguments."""
    names = [name for name in vars(protocol) if name == "__call__" or not name.startswith("_")]
    functions = {name: vars(protocol)[name] for name in names if inspect.isfunction(vars(protocol)[name])}
    return {name: tuple(inspect.signature(fn).parameters)[1:] for name, fn in functions.items()}


def _takes(called: object, number: int) -> bool:
    """Whether it can be called with so many arguments; also if that cannot be known."""
    signature = _signature(called)
    if signature is None:
        return True
    try:
        signature.bind(*[None] * number)
    except TypeError:
        return False
    return True


def _is_named_like(value: object, methods: Methods) -> bool:
    """Whether it has these methods, with arguments of these names."""
    return all(_names(_method(value, name)) == arguments for name, arguments in methods.items())


def _method(value: object, name: str) -> object:
    """A method of the value; for `__call__` the value itself, because `inspect` can tell its arguments."""
    return value if name == "__call__" else getattr(value, name, None)


def _names(called: object) -> tuple[str, ...]:
    signature = _signature(called)
    return () if signature is None else tuple(signature.parameters)


def _signature(called: object) -> inspect.Signature | None:
    """The arguments that it takes, if they can be known; those of some builtin functions cannot."""
    try:
        return inspect.signature(called)  # type: ignore[arg-type]
    except (ValueError, TypeError):
        return None
