"""Sentence pairs from a small grammar, for machines without SNLI. Results on them are labelled as not natural language.

A scene has six slots (who, clothes, action, place, time, company). Each slot has values, and its values form groups:
"a nurse" belongs to "an adult". The premise names all slots but one, each by a value. The hypothesis names two to four
slots, each by a value or by a group. The label follows from them:

    entailment      the premise names every slot of the hypothesis, with the same value or one of the same group
    contradiction   the same, except that one of these slots has a value of another group
    neutral         the hypothesis names the slot that the premise leaves out; the others agree

The hypothesis is drawn without regard to the label, and for every label the premise's values and its missing slot are
uniform. So neither sentence alone gives the label away: a network has to compare them.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from unibio.core import checks
from unibio.paper.data.snli import LABELS, Pairs
from unibio.paper.data.vectors import Vectors

# slot → group → values, each with two phrasings; the name of a group is its phrasing
SCENE: dict[str, dict[str, tuple[str, ...]]] = {
    "who": {
        "an adult": ("a man|a gentleman", "a woman|a lady", "a nurse|a hospital worker", "a farmer|a rancher"),
        "a child": ("a boy|a young lad", "a girl|a young lass", "a toddler|a small kid", "a pupil|a schoolkid"),
    },
    "clothes": {
        "in bright clothes": ("in red|wearing scarlet", "in yellow|wearing gold", "in orange|wearing apricot"),
        "in dark clothes": ("in black|wearing ebony", "in navy|wearing indigo", "in brown|wearing chestnut"),
    },
    "action": {
        "is exercising": ("is running|jogs", "is swimming|does laps", "is cycling|rides a bike", "is climbing|scales"),
        "is resting": ("is sleeping|naps", "is lying down|reclines", "is daydreaming|muses", "is sitting|lounges"),
        "is making music": ("is singing|hums a tune", "is drumming|beats a drum", "is fiddling|plays the violin"),
    },
    "place": {
        "outdoors": ("in a park|on a green", "at a beach|by the sea", "in a forest|among trees", "uphill|on a hill"),
        "indoors": ("in a kitchen|by a stove", "in a library|among books", "in an office|at work", "below|in a cellar"),
    },
    "time": {
        "by daylight": ("in the morning|after breakfast", "at noon|around midday", "in the afternoon|after lunch"),
        "after dark": ("at night|past bedtime", "at midnight|under the moon", "late in the evening|after supper"),
    },
    "company": {
        "with an animal": ("with a dog|beside a hound", "with a cat|beside a kitten", "with a horse|beside a pony"),
        "with people": ("with a friend|beside a pal", "with a neighbour|beside a local", "with a sister|by a sibling"),
    },
}  # fmt: skip
_SLOTS = tuple(SCENE)


def generate(count: int, seed: int) -> Pairs:
    """Pairs with labels in equal shares, in random order; another seed gives other pairs."""
    checks.whole_number("count", count, low=1)
    checks.whole_number("seed", seed, low=0, high=checks.LONGEST)
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(count) % len(LABELS)).astype(np.int32)
    pairs = [_pair(rng, LABELS[label]) for label in labels]
    return Pairs([a.split() for a, _ in pairs], [b.split() for _, b in pairs], labels, {})


def _pair(rng: np.random.Generator, label: str) -> tuple[str, str]:
    named = rng.permutation(len(_SLOTS))[: rng.integers(2, 5)]
    stated = {_SLOTS[i]: _value(rng, _SLOTS[i], SCENE[_SLOTS[i]]) for i in named}
    general = {slot: rng.random() < 0.5 for slot in stated}
    others = [slot for slot in _SLOTS if slot not in stated]
    missing = _one(rng, list(stated) if label == "neutral" else others)
    premise = _premise(rng, stated, general)
    if label == "contradiction":
        slot = _one(rng, list(stated))
        premise[slot] = _value(rng, slot, [group for group in SCENE[slot] if group != stated[slot][0]])
    del premise[missing]
    hypothesis = {slot: group if general[slot] else _phrase(rng, value) for slot, (group, value) in stated.items()}
    return _sentence({slot: _phrase(rng, value) for slot, (_, value) in premise.items()}), _sentence(hypothesis)


def _premise(
    rng: np.random.Generator, stated: dict[str, tuple[str, str]], general: dict[str, bool]
) -> dict[str, tuple[str, str]]:
    """A value for each slot: the one in the hypothesis; any of its group, if the hypothesis has the group; else any."""
    premise = {}
    for slot, groups in SCENE.items():
        if slot in stated and not general[slot]:
            premise[slot] = stated[slot]
        else:
            premise[slot] = _value(rng, slot, stated[slot][:1] if slot in stated else groups)
    return premise


def _one(rng: np.random.Generator, options: Sequence[Any]) -> Any:
    """One of the options, each with the same probability."""
    return options[int(rng.random() * len(options))]


def _value(rng: np.random.Generator, slot: str, groups: Iterable[str]) -> tuple[str, str]:
    """(group, value), uniform over the values of these groups of the slot."""
    return _one(rng, [(group, value) for group in groups for value in SCENE[slot][group]])


def _phrase(rng: np.random.Generator, value: str) -> str:
    return _one(rng, value.split("|"))


def _sentence(phrases: dict[str, str]) -> str:
    return " ".join(phrases.get(slot, "someone" if slot == "who" else "") for slot in _SLOTS)


def vectors(width: int = 50, seed: int = 0) -> Vectors:
    """A vector for every word: the sum of one for its slot, one for its group and one of its own. So words of one
    group are near each other. The word "someone" belongs to no slot and has a vector of its own; a word in several
    groups ("a", "in") has the vector of the first."""
    checks.whole_number("width", width, low=2)
    rng = np.random.default_rng(seed)
    made: dict[str, np.ndarray] = {"someone": rng.normal(size=width)}
    for groups in SCENE.values():
        slot = rng.normal(size=width)
        for group, values in groups.items():
            shared = slot + rng.normal(size=width)
            for phrase in (group, *(p for value in values for p in value.split("|"))):
                for word in phrase.split():
                    made.setdefault(word, shared + rng.normal(size=width))
    return Vectors(list(made), np.stack(list(made.values())).astype(np.float32) / np.float32(np.sqrt(3)))
