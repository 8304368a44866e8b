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

__all__ = [
    "Audit",
    "Certificate",
    "Certified",
    "Constants",
    "Finding",
    "LowerPlan",
    "Schedule",
    "audit",
    "certificate",
    "coupled_example3_constants",
    "example3_constants",
    "example4_constants",
    "holder_constant",
    "modulus",
    "monotonicity",
    "regression_moduli",
    "scalar_modulus",
    "schedule",
    "smoothness",
]
