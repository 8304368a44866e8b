"""Lower solutions as users ask for them, in float32: what is no minimiser is refused, what is one is found."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))
from lower_examples import WITHOUT, check_nan, check_refused, check_uneven_scales


@pytest.mark.parametrize("name", WITHOUT)
@pytest.mark.slow
def test_what_is_no_minimiser_is_refused(name):
    check_refused(name, "float32")


@pytest.mark.parametrize("name", ["separable logistic", "y³ from 1"])
@pytest.mark.slow
def test_what_is_no_minimiser_is_nan_in_compiled_code(name):
    check_nan(name, "float32")


@pytest.mark.slow
def test_uneven_scales():
    check_uneven_scales("float32")
