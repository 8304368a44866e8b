"""Estimators for scikit-learn. They need the extra `sklearn`; `import unibio` does not load them."""

from unibio.sklearn.hyper_cleaner import HyperCleaner

__all__ = ["HyperCleaner"]
