"""One run on all devices of all processes: the same script on a laptop and on a cluster.

    from unibio import distributed

    distributed.initialise()                            # before any other use of JAX
    mesh = distributed.mesh()                           # all devices of all processes
    problem, x, y = distributed.shard(problem, x, y, mesh)
    result = ub.solve(problem, solver, x, y, …)         # every process calls it; the first one prints and writes

Data are cut by samples, and with them the parts of x that have an entry per sample; y lies on every device, or where
a rule puts it. Solvers know nothing of this.
"""

from unibio.distributed.mesh import from_local, initialise, mesh, rows_of_this_process, shard
from unibio.distributed.processes import gathered, is_leader

__all__ = ["from_local", "gathered", "initialise", "is_leader", "mesh", "rows_of_this_process", "shard"]
