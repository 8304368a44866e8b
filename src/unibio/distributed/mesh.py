"""Joining processes, the mesh of their devices, and where data and variables lie on it."""

import os
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jax.tree_util import KeyPath

from unibio.core import checks
from unibio.core.batches import Dataset
from unibio.core.problem import Problem
from unibio.core.tree import PyTree
from unibio.distributed.dataset import SAMPLES, Sharded, check_divides

PARAMETERS = "parameters"
Rule = Callable[[str, tuple[int, ...]], PartitionSpec]

_HEARTBEAT_SECONDS = 20  # a process that was silent for this time is taken to be gone, and the others end
_LEADER_STAYS = 2.0  # seconds


def initialise(
    coordinator_address: str | None = None, num_processes: int | None = None, process_id: int | None = None
) -> int:
    """Joins this process to the others, and returns how many there are. Call it before any other use of JAX.

    Arguments that are left out are taken from the environment: from SLURM, Open MPI or Kubernetes as
    `jax.distributed.initialize` reads them, or from JAX_COORDINATOR_ADDRESS (host:port of process 0), JAX_NUM_PROCESSES
    and JAX_PROCESS_ID. If the environment says nothing either, this process is alone, and 1 is returned.

    From here on, if a process fails or is killed, JAX ends the others within half a minute, and says that a task died.
    """
    given = (
        coordinator_address or os.environ.get("JAX_COORDINATOR_ADDRESS"),
        _number("JAX_NUM_PROCESSES", num_processes),
        _number("JAX_PROCESS_ID", process_id),
    )
    if any(value is not None for value in given) and None in given:
        raise ValueError(
            "give all of coordinator_address (JAX_COORDINATOR_ADDRESS), num_processes (JAX_NUM_PROCESSES) and "
            f"process_id (JAX_PROCESS_ID), or none of them; got {given}."
        )
    jax.config.update("jax_enable_preemption_service", False)  # it would swallow SIGTERM
    try:
        jax.distributed.initialize(*given, heartbeat_timeout_seconds=_HEARTBEAT_SECONDS)
    except ValueError as error:
        if "should be defined" in str(error) or "must be defined" in str(error):
            return 1
        raise
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    sys.excepthook = _fail
    return jax.process_count()


def _fail(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Ends this process at once after an uncaught error. A regular exit would wait for the other processes, which wait
    for this one."""
    sys.__excepthook__(kind, error, trace)
    sys.stdout.flush()
    sys.stderr.flush()
    if jax.process_index() == 0:
        time.sleep(_LEADER_STAYS)  # without the coordinator the others could not finish telling the same error
    os._exit(1)


def check_mesh(value: Mesh | None) -> None:
    """`value` must be a mesh as `mesh()` makes it, or None."""
    if value is not None and (not isinstance(value, Mesh) or SAMPLES not in value.shape):
        raise TypeError(f"mesh must be one such as unibio.distributed.mesh(), or left out; got {value!r}.")


def mesh(parameters: int = 1) -> Mesh:
    """A mesh of all devices of all processes. Its axis `samples` is for data, and its axis `parameters`, of the given
    size, for a `rule` of `shard` that cuts y."""
    devices = jax.devices()
    checks.whole_number("parameters", parameters, low=1)
    if len(devices) % parameters:
        raise ValueError(f"parameters={parameters} does not divide the number of devices, {len(devices)}.")
    grid = np.asarray(devices).reshape(-1, parameters)
    return Mesh(grid, (SAMPLES, PARAMETERS), axis_types=(AxisType.Auto, AxisType.Auto))


def shard(
    problem: Problem, x: PyTree, y: PyTree, mesh: Mesh, rule: Rule | None = None
) -> tuple[Problem, PyTree, PyTree]:
    """Returns problem, x and y with their arrays on the devices of a mesh.

    Arguments:
        problem: with every Dataset, and every array in f and g whose first axis is the samples of g, cut by samples. An
            array that is on the mesh already, such as `from_local` makes, stays where it is.
        x: parts whose first axis is the samples of g are cut with them.
        y: on every device, or as `rule(path, shape) -> PartitionSpec` says, e.g.
            `lambda path, shape: PartitionSpec("parameters") if len(shape) > 1 else PartitionSpec()`.
    """
    samples = problem.g_batches.n if isinstance(problem.g_batches, Dataset) else None

    def by_samples(path: str, shape: tuple[int, ...]) -> PartitionSpec:
        return PartitionSpec(SAMPLES) if shape and shape[0] == samples else PartitionSpec()

    functions = tuple(_placed(fn, mesh, by_samples) for fn in (problem.f, problem.g))
    samplers = tuple(_sampler(sampler, mesh) for sampler in (problem.f_batches, problem.g_batches))
    problem = eqx.tree_at(lambda p: (p.f, p.g, p.f_batches, p.g_batches), problem, (*functions, *samplers))
    return problem, _placed(x, mesh, by_samples), _placed(y, mesh, rule or (lambda path, shape: PartitionSpec()))


def rows_of_this_process(samples: int, mesh: Mesh) -> slice:
    """The samples that this process has to load, as a slice of their numbers."""
    check_divides("samples", samples, mesh.shape[SAMPLES])
    where = NamedSharding(mesh, PartitionSpec(SAMPLES)).addressable_devices_indices_map((samples,))
    parts = [index[0].indices(samples) for index in where.values() if index is not None]
    return slice(min(part[0] for part in parts), max(part[1] for part in parts))


def from_local(local: PyTree, samples: int, mesh: Mesh) -> PyTree:
    """Makes arrays on the mesh with a row for each of all `samples` samples. Each process gives only its own rows,
    those of `rows_of_this_process(samples, mesh)`.

    Example:
        >>> mesh = distributed.mesh()
        >>> rows = distributed.rows_of_this_process(8, mesh)
        >>> distributed.from_local(np.arange(8.0)[rows], 8, mesh).shape
        (8,)
    """
    rows, sharding = rows_of_this_process(samples, mesh), NamedSharding(mesh, PartitionSpec(SAMPLES))

    def whole(array: Any) -> jax.Array:
        array = np.asarray(array)
        if array.ndim == 0 or array.shape[0] != rows.stop - rows.start:
            raise ValueError(
                f"this process has to give the samples {rows.start} to {rows.stop - 1}, {rows.stop - rows.start} rows; "
                f"got an array of shape {array.shape}."
            )
        return jax.make_array_from_process_local_data(sharding, array, (samples, *array.shape[1:]))

    return jax.tree.map(whole, local)


def _number(name: str, given: int | None) -> int | None:
    return int(os.environ[name]) if given is None and name in os.environ else given


def _sampler(sampler: Any, mesh: Mesh) -> Any:
    """A Dataset cut by samples; other samplers have no data to cut."""
    if not isinstance(sampler, Dataset):
        return sampler
    cut = Sharded(sampler, mesh)
    return eqx.tree_at(lambda s: s.data, cut, _placed(sampler.data, mesh, lambda path, shape: PartitionSpec(SAMPLES)))


def _placed(variable: PyTree, mesh: Mesh, rule: Rule) -> PyTree:
    """Puts every array where the rule says. Plain numbers, and arrays that are on the mesh already, stay as they
    are."""

    def place(path: KeyPath[Any], leaf: Any) -> Any:
        if not isinstance(leaf, (jax.Array, np.ndarray)):
            return leaf
        if isinstance(leaf, jax.Array) and isinstance(leaf.sharding, NamedSharding) and leaf.sharding.mesh == mesh:
            return leaf
        sharding = NamedSharding(mesh, rule(jax.tree_util.keystr(path), leaf.shape))
        host = np.asarray(leaf)  # each process has all of it and puts its own part on its devices
        return jax.make_array_from_callback(leaf.shape, sharding, lambda index: host[index])

    return jax.tree_util.tree_map_with_path(place, variable)
