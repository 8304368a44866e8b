"""Run by test_laws.py in a process with two devices: prints, as JSON, where every solver arrives on sharded data."""

import json
import sys

import jax

jax.config.update("jax_enable_x64", True)

from common.settings import KEY, MODES, SETTINGS, STEPS, regression  # noqa: E402
from jax.sharding import AxisType, NamedSharding, PartitionSpec  # noqa: E402

import unibio as ub  # noqa: E402

mesh = jax.make_mesh((2,), ("samples",), axis_types=(AxisType.Auto,))
rows, everywhere = NamedSharding(mesh, PartitionSpec("samples")), NamedSharding(mesh, PartitionSpec())
problem, x, y = regression(place=lambda array: jax.device_put(array, rows))
y = jax.device_put(y, everywhere)
run = jax.jit(ub.trajectory, static_argnames="steps", compiler_options=json.loads(sys.argv[1]))
report: dict[str, object] = {"shards": [list(shard.data.shape) for shard in x.addressable_shards]}
for name, solver in {**SETTINGS, **MODES}.items():
    state, log = run(problem, solver, x, y, steps=STEPS, key=jax.random.key(KEY))
    report[name] = {
        "x": state.x.tolist(),
        "y": state.y.tolist(),
        "direction_norm": log.direction_norm.tolist(),
        "calls": [int(counts.sum()) for counts in log.calls],
        "devices": len(state.x.sharding.device_set),
    }
json.dump(report, sys.stdout)
