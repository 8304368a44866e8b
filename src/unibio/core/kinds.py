"""What an object that is handed to the library must be able to do, and the one check of it.

A *kind* of object is a protocol: `LowerSolver`, `Hypergradient`, `Metric`, … `is_a` compares an argument with the
methods of the protocol before anything is compiled: each must be there and take as many arguments. Kinds that are
called with the same number of arguments, such as a `Hypergradient` and a `LowerSolver`, are told apart by the names of
these arguments; so an object is refused if its names are those of another kind. Other names of your own are fine.
"""

from typing import TypeVar

import equinox as eqx

Protocol = TypeVar("Protocol", bound=type)
Methods = dict[str, tuple[str, ...]]  # the arguments of each method, without self

_PARTS: dict[type, Methods] = {}


def part(protocol: Protocol) -> Protocol:
    """Declares a protocol to be one of the parts that solvers and methods consist of. Such an object must be an equinox
    Module, because its numbers are arguments of compiled programs."""
    _PARTS[protocol] = _methods(protocol)
    return protocol


def is_a(name: str, value: object, protocol: type, choices: str) -> None:
    """Raises a TypeError unless `value` is an object of the kind that `protocol` describes. `choices` says in words what
    the argument of this name may be."""
    fault = _fault(value, protocol)
    if fault:
        own = ", or an equinox Module of your own" if protocol in _PARTS else ""
        raise TypeError(f"{name} must be {choices}{own}; got {_shown(value)}{fault}.")


def fits(value: object, protocol: type) -> bool:
    """Whether `value` is an object of that kind."""
    return not _fault(value, protocol)


def _fault(value: object, protocol: type) -> str:
    """Why the value is no object of that kind, as the end of a sentence that names it; "" if it is one."""
    if isinstance(value, type):
        return ", a class: make an instance of it"
    wanted = _PARTS.get(protocol) or _methods(protocol)
    for method, arguments in wanted.items():
        if not callable(getattr(value, method, None)):
            return "" if method == "__call__" and not callable(value) and _plain(value) else _lack(method)
        if not _takes(value, method, len(arguments)):
            return f", whose {method} does not take the {len(arguments)} arguments ({', '.join(arguments)})"
    if protocol not in _PARTS:
        return ""
    other = _named_like(value, protocol)
    if other:
        return f", which is a {other}"
    return "" if isinstance(value, eqx.Module) else ", which is no Module"
