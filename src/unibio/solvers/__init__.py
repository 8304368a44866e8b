"""Algorithms, one per file, all with the same `init` and `step`. A new one is a file and a line in SOLVERS."""

from typing import Any

from unibio.solvers.amigo import AmIGO
from unibio.solvers.bo_rep import BOREP
from unibio.solvers.f2sa import F2SA
from unibio.solvers.ma_soba import MASOBA
from unibio.solvers.saba import SABA
from unibio.solvers.soba import SOBA
from unibio.solvers.stocbio import StocBiO
from unibio.solvers.sustain import SUSTAIN
from unibio.solvers.ttsa import TTSA
from unibio.solvers.unibio import UniBiO
from unibio.solvers.vrbo import VRBO

SOLVERS: dict[str, Any] = {
    "UniBiO": UniBiO,
    "StocBiO": StocBiO,
    "TTSA": TTSA,
    "SOBA": SOBA,
    "SABA": SABA,
    "MA-SOBA": MASOBA,
    "SUSTAIN": SUSTAIN,
    "VRBO": VRBO,
    "BO-REP": BOREP,
    "AmIGO": AmIGO,
    "F2SA": F2SA,
}

__all__ = [
    "BOREP",
    "F2SA",
    "MASOBA",
    "SABA",
    "SOBA",
    "SOLVERS",
    "SUSTAIN",
    "TTSA",
    "VRBO",
    "AmIGO",
    "StocBiO",
    "UniBiO",
]
