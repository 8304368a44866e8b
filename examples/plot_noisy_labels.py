"""For people with a table whose labels they do not trust: finds wrong labels and fits a model in spite of them.

A table of 1,797 handwritten digits gets 30 % wrong labels. 60 labels have been checked. HyperCleaner learns from both,
lists the labels that are probably wrong, and is compared with a model that takes all labels for right.
"""

import sys

import matplotlib
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from unibio.sklearn import HyperCleaner

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def main(path: str = "noisy_labels.png") -> None:
    X, truth = load_digits(return_X_y=True)
    random = np.random.default_rng(0)
    order = random.permutation(len(truth))
    X, truth = X[order], truth[order]
    train, test = slice(0, 1200), slice(1200, None)

    labels = np.where(random.random(1200) < 0.3, random.integers(0, 10, 1200), truth[train])
    checked = np.arange(1200) < 60  # somebody has looked at the first sixty
    labels[checked] = truth[:60]

    cleaner = HyperCleaner(random_state=0).fit(X[train], labels, trusted=checked)
    print(cleaner.report_)
    for suspect in cleaner.suspects_[:5]:
        print(f"row {suspect.row}: given {suspect.given}, suggested {suspect.suggested} ({suspect.confidence:.3f})")

    wrong = labels != truth[train]
    plain = LogisticRegression(C=0.01, max_iter=1000).fit(X[train], labels)
    print(f"AUROC of the suspicion {roc_auc_score(wrong, cleaner.suspicion_):.3f}")
    print(f"test accuracy {cleaner.score(X[test], truth[test]):.3f}")
    print(f"of a model that takes all labels for right {plain.score(X[test], truth[test]):.3f}")

    figure, axes = plt.subplots(2, 8, figsize=(10, 3.2))
    for axis, suspect in zip(axes.ravel(), cleaner.suspects_, strict=False):
        axis.imshow(X[train][suspect.row].reshape(8, 8), cmap="Greys")
        axis.set_title(f"given {suspect.given}\nsuggested {suspect.suggested}", fontsize=8)
        axis.axis("off")
    figure.tight_layout()
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main(*sys.argv[1:])
