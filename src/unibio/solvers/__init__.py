"""Algorithms, one per file, all with the same `init` and `step`. A new one is a file and a line in SOLVERS."""

from typing import Any

from unibio.solvers.amigo import AmIGO as AmIGO
from unibio.solvers.bo_rep import BOREP as BOREP
from unibio.solvers.f2sa import F2SA as F2SA
from unibio.solvers.ma_soba import MASOBA as MASOBA
from unibio.solvers.saba import SABA as SABA
from unibio.solvers.soba import SOBA as SOBA
from unibio.solvers.stocbio import StocBiO as StocBiO
from unibio.solvers.sustain import SUSTAIN as SUSTAIN
from unibio.solvers.ttsa import TTSA as TTSA
from unibio.solvers.unibio import UniBiO as UniBiO
from unibio.solvers.vrbo import VRBO as VRBO

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
