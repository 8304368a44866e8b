"""Checkpoints of a run on a mesh: each process writes its part of the state, and any number of devices can read it.

The folder must be one that all processes see. A checkpoint is a folder `step-….state`, written by orbax, and the usual
file `step-….checkpoint` with all the rest, written by the first process when the state is complete: so the file says
that there is a checkpoint.
"""

import re
import shutil
from pathlib import Path
from typing import Any

import jax

from unibio.core.tree import PyTree
from unibio.distributed.placement import Placed
from unibio.distributed.processes import from_leader, is_leader
from unibio.files.archive import Facts, decode, encode
from unibio.run.between import View
from unibio.run.checkpoints import Checkpoints, Keeper, with_anchor
from unibio.run.record import Anchor
from unibio.run.result import Result

_SUFFIX = ".state"
_STATE = re.compile(r"step-\d{12}\.state(\.orbax-checkpoint-tmp.*)?")  # with an ending: of a write that was killed


class MeshKeeper(Keeper):
    """`Keeper` for arrays on a mesh; every process calls the same methods."""

    def __init__(self, files: Checkpoints, identity: Facts, key: jax.Array, solver: Placed) -> None:
        super().__init__(files, identity, key)
        self.solver = solver
        try:
            import orbax.checkpoint
        except ImportError as error:
            raise ImportError(
                "checkpoints of arrays on a mesh are written by orbax: pip install 'unibio[dist]'."
            ) from error
        self.orbax: Any = orbax.checkpoint

    def store(self, view: View) -> None:
        """Writes the checkpoint. A failed write ends the run, unlike on one process, because the other processes have
        no way to know of it."""
        record, probe = view.record, self.probe(view)
        with self.orbax.StandardCheckpointer() as writer:
            states = view.state, None if record.anchor is None else record.anchor.state
            writer.save(self._folder(record.step), _plain_leaves(states), force=True)
        if not is_leader():
            self.on_disk = record.step  # as far as this process can know
        else:
            self._write(record, (), probe)
            complete = {path.stem for path in self.files.files()}
            for folder in Path(self.files.folder).iterdir():
                if _STATE.fullmatch(folder.name) and folder.name.split(".")[0] not in complete:
                    shutil.rmtree(folder, ignore_errors=True)

    def resumed(self, wanted: PyTree) -> tuple[Result, Anchor | None] | None:
        facts, arrays = self._newest()
        if facts is None:
            return None
        both = with_anchor(facts, wanted)
        shapes = jax.tree.leaves(jax.eval_shape(_plain_leaves, both))
        places = jax.tree.leaves(self.solver.shardings(both))
        like = [jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=p) for s, p in zip(shapes, places, strict=True)]
        folder = self._folder(facts["steps"])
        try:
            with self.orbax.StandardCheckpointer() as reader:
                state = reader.restore(folder, like)
        except (ValueError, OSError, KeyError) as error:
            raise ValueError(
                f"{folder} could not be read ({error}). Either it is damaged: then delete the file "
                f"{folder.stem}.checkpoint beside it, and the run goes on from the checkpoint before. Or it holds the "
                "state of another solver, or of variables of another shape: then use another folder."
            ) from error
        return self.result_of(facts, arrays | {"state": state}, wanted)

    def _folder(self, step: int) -> Path:
        return Path(self.files.folder).absolute() / f"step-{step:012d}{_SUFFIX}"

    def _newest(self) -> tuple[Any, dict[str, Any]]:
        """The newest checkpoint that the first process finds, on every process, so that all go on from the same step.
        If the first process refuses it, all do."""
        refused = ""
        found = None
        if is_leader():
            try:
                found = self.files.newest(self.identity)
            except ValueError as error:
                refused = str(error)
        facts, arrays = (None, {}) if found is None else found
        sent = from_leader(encode({"refused": refused, "facts": facts}, arrays))
        answer, arrays = decode(sent)
        if answer["refused"]:
            raise ValueError(answer["refused"])
        return answer["facts"], arrays


def _plain_leaves(state: PyTree) -> list[Any]:
    """The arrays of a state; for a random key, the array of its numbers."""
    is_key = jax.dtypes.prng_key
    leaves = jax.tree.leaves(state)
    return [jax.random.key_data(leaf) if jax.numpy.issubdtype(leaf.dtype, is_key) else leaf for leaf in leaves]
