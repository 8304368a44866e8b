"""The paper's constants, schedules and bounds as code, with its errors corrected; docs/theory.md has the proofs."""

from unibio.paper.theory.assumptions import Finding as Finding
from unibio.paper.theory.audit import Audit as Audit
from unibio.paper.theory.audit import audit as audit
from unibio.paper.theory.certificate import Certificate as Certificate
from unibio.paper.theory.certificate import Certified as Certified
from unibio.paper.theory.certificate import certificate as certificate
from unibio.paper.theory.constants import Constants as Constants
from unibio.paper.theory.constants import coupled_example3_constants as coupled_example3_constants
from unibio.paper.theory.constants import example3_constants as example3_constants
from unibio.paper.theory.constants import example4_constants as example4_constants
from unibio.paper.theory.moduli import holder_constant as holder_constant
from unibio.paper.theory.moduli import modulus as modulus
from unibio.paper.theory.moduli import monotonicity as monotonicity
from unibio.paper.theory.moduli import regression_moduli as regression_moduli
from unibio.paper.theory.moduli import scalar_modulus as scalar_modulus
from unibio.paper.theory.moduli import smoothness as smoothness
from unibio.paper.theory.schedule import LowerPlan as LowerPlan
from unibio.paper.theory.schedule import Schedule as Schedule
from unibio.paper.theory.schedule import schedule as schedule
from unibio.paper.theory.without_p import ScheduleWithoutP as ScheduleWithoutP
from unibio.paper.theory.without_p import complexity_without_p as complexity_without_p
from unibio.paper.theory.without_p import grid_without_p as grid_without_p
from unibio.paper.theory.without_p import schedule_without_p as schedule_without_p
from unibio.paper.theory.without_p import validated as validated
