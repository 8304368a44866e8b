"""The paper's constants, schedules and bounds as code, with its errors corrected; docs/theory.md has the proofs."""

from unibio.paper.theory.assumptions import Finding
from unibio.paper.theory.audit import Audit, audit
from unibio.paper.theory.certificate import Certificate, Certified, certificate
from unibio.paper.theory.constants import Constants, coupled_example3_constants, example3_constants, example4_constants
from unibio.paper.theory.moduli import (
    holder_constant,
    modulus,
    monotonicity,
    regression_moduli,
    scalar_modulus,
    smoothness,
)
from unibio.paper.theory.schedule import LowerPlan, Schedule, schedule
from unibio.paper.theory.without_p import (
    ScheduleWithoutP,
    complexity_without_p,
    grid_without_p,
    schedule_without_p,
    validated,
)

__all__ = [
    "Audit",
    "Certificate",
    "Certified",
    "Constants",
    "Finding",
    "LowerPlan",
    "Schedule",
    "ScheduleWithoutP",
    "audit",
    "certificate",
    "complexity_without_p",
    "coupled_example3_constants",
    "example3_constants",
    "example4_constants",
    "grid_without_p",
    "holder_constant",
    "modulus",
    "monotonicity",
    "regression_moduli",
    "scalar_modulus",
    "schedule",
    "schedule_without_p",
    "smoothness",
    "validated",
]
