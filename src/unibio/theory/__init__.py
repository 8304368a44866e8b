"""The paper's constants, schedules and bounds as code, with its errors corrected."""

from unibio.theory.assumptions import Finding
from unibio.theory.audit import Audit, audit
from unibio.theory.certificate import Certificate, Certified, certificate
from unibio.theory.constants import (
    Constants,
    coupled_example3_constants,
    example3_constants,
    example4_constants,
)
from unibio.theory.moduli import (
    holder_constant,
    modulus,
    monotonicity,
    regression_moduli,
    scalar_modulus,
    smoothness,
)
from unibio.theory.schedule import LowerPlan, Schedule, schedule

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
