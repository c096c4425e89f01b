"""How much less must be read to keep the same share of gold answers if implausible candidates are ruled out first.

For every folder of results that has both, the best sum of tiers without a language model (`structure.json`) is compared
with the same sum without plausibility (`structure-plain.json`), from the ranks on test: k candidates per question keep
a share of the golds, and the ratio of the two k is what is saved. Where valid left plausibility out of the sum, the two
differ only in what else was weighed, and no ratio is given. Usage: python bench/plausibility.py [RESULTS]
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from cascader.evaluation import Evaluation
from measuring import report

COVERAGES = (0.5, 0.75, 0.9)


def candidates_to_keep(evaluation: Evaluation, coverage: float) -> int:
    """The smallest number of candidates per question that keeps this share of the golds."""
    ranks = np.sort(evaluation.ranks.filtered.mean)
    return int(np.ceil(ranks[int(np.ceil(coverage * len(ranks))) - 1]))


def has_prior(evaluation: Evaluation) -> bool:
    """Whether valid gave plausibility a place in the sum."""
    later = [tier["tier"] for tier in evaluation.about["later"]]
    return "plausibility" in [evaluation.about["first"], *later]


def compare(folder: Path) -> dict[str, Any]:
    """Compare the two sums of a dataset."""
    plain, with_prior = (Evaluation.load(folder / f"{name}.json") for name in ("structure-plain", "structure"))
    found: dict[str, Any] = {"plain_mrr": plain.mrr, "mrr": with_prior.mrr, "has_prior": has_prior(with_prior)}
    for coverage in COVERAGES:
        without, within = (candidates_to_keep(each, coverage) for each in (plain, with_prior))
        found[f"{coverage:g}"] = {"plain": without, "plausible": within, "saved": 1 - within / without}
    return found


def main() -> None:
    """Compare all datasets, and report the shares saved."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", nargs="?", type=Path, default=Path("results"))
    folders = sorted(path.parent for path in parser.parse_args().results.glob("*/structure-plain.json"))
    found = {folder.name: compare(folder) for folder in folders}
    for name, figures in found.items():
        if not figures["has_prior"]:
            print(f"{name}: valid leaves plausibility out")
            continue
        for coverage in COVERAGES:
            of = figures[f"{coverage:g}"]
            print(
                f"{name}: {of['plausible']:,} candidates instead of {of['plain']:,} keep {coverage:.0%} of the golds "
                f"({of['saved']:.0%} saved)"
            )
    used = {name: of for name, of in found.items() if of["has_prior"]}
    ratios = {f"{name}: candidates for 90 % of the golds,": 1 / (1 - of["0.9"]["saved"]) for name, of in used.items()}
    report("plausibility", ratios, {"datasets": found}, ["numpy"])


if __name__ == "__main__":
    main()
