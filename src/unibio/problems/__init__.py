"""Bilevel problems to try things on: the paper's examples, hyper-cleaning of any model, and a quadratic."""

from unibio.problems.examples import coupled_example3 as coupled_example3
from unibio.problems.examples import example1 as example1
from unibio.problems.examples import example3 as example3
from unibio.problems.examples import example4 as example4
from unibio.problems.examples import quadratic as quadratic
from unibio.problems.hyper_cleaning import LossNetwork as LossNetwork
from unibio.problems.hyper_cleaning import LpLoss as LpLoss
from unibio.problems.hyper_cleaning import NoiseRate as NoiseRate
from unibio.problems.hyper_cleaning import PerSample as PerSample
from unibio.problems.hyper_cleaning import Setting as Setting
from unibio.problems.hyper_cleaning import Shared as Shared
from unibio.problems.hyper_cleaning import cross_entropy as cross_entropy
from unibio.problems.hyper_cleaning import hyper_cleaning as hyper_cleaning
from unibio.problems.lp_regression import corrupted_regression as corrupted_regression
from unibio.problems.lp_regression import lp_regression as lp_regression
from unibio.problems.named import PROBLEMS as PROBLEMS
