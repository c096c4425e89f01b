"""How well questions about drugs that RepoDB does not have are answered from their texts.

Some drugs are held out with all their facts; a small ComplEx and a dual encoder train on the rest. The held-out drugs
are then given by their texts alone, and what they treat is asked for. Usage: python bench/new_entities.py [--drugs N]
[--seed N]
"""

import argparse

import numpy as np

import cascader
from cascader.cascade import Cascade
from cascader.evaluation.protocol import mean_reciprocal_rank
from cascader.graph import KnowledgeGraph, KnownAnswers, Queries
from cascader.runs import for_new_entities
from cascader.scoring.scorer import Scorer
from cascader.tuning import tune_alpha
from measuring import report


def main() -> None:
    """Hold drugs out, train, ask, and report each MRR relative to that of the most frequent answers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--drugs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=20)
    options = parser.parse_args()
    whole = cascader.load_graph("repodb")
    kg, new, triples = without(whole, options.drugs, options.seed)
    kge = cascader.ComplEx(dim=100, epochs=options.epochs, seed=options.seed).fit(kg)
    dual = cascader.DualEncoder(epochs=options.epochs, seed=options.seed).fit(kg, earlier=kge)
    alpha = tune_alpha(kge, dual, kg)
    both = Cascade(kge, name="kge").then(dual, alpha=alpha, name="dual")
    tiers, entities = {"kge": kge, "dual": dual}, [whole.entities[drug] for drug in new]
    scorers: dict[str, Scorer] = {
        "text_tiers": for_new_entities(Cascade(dual, name="dual"), tiers, entities, kg),
        "estimated_tier_1": for_new_entities(Cascade(kge, name="kge"), tiers, entities, kg),
        "cascade": for_new_entities(both, tiers, entities, kg),
        "frequency": cascader.Frequency().fit(kg),
    }
    queries = Queries.from_triples(triples, "tail")
    known = KnownAnswers(triples, len(kg.entities), len(kg.relations))
    mrr = {name: mean_reciprocal_rank(scorer, queries, known) for name, scorer in scorers.items()}
    report(
        "new_entities",
        {f"{name}_vs_frequency": value / mrr["frequency"] for name, value in mrr.items() if name != "frequency"},
        {
            "what": f"the MRR of {len(triples):,} facts of {len(new):,} drugs that were held out, asked by text alone",
            "mrr": {name: round(value, 4) for name, value in mrr.items()},
            "alpha": alpha.tail,
            "seed": options.seed,
        },
        ["torch", "transformers"],
    )
    for name, value in mrr.items():
        print(f"{name}: MRR {value:.4f}")


def without(kg: KnowledgeGraph, count: int, seed: int) -> tuple[KnowledgeGraph, np.ndarray, np.ndarray]:
    """Return the graph without some heads and their facts, those heads, and their facts with heads numbered from 0.

    They stay in the list of entities, where nothing is learned of them and no gold is one of them.
    """
    heads = np.unique(kg.train[:, 0])
    new = np.sort(np.random.default_rng(seed).permutation(heads)[:count])
    facts = kg.triples()
    held_out = facts[np.isin(facts[:, 0], new)].copy()
    held_out[:, 0] = np.searchsorted(new, held_out[:, 0])
    splits = (split[~np.isin(split[:, [0, 2]], new).any(axis=1)] for split in (kg.train, kg.valid, kg.test))
    return KnowledgeGraph(kg.name, kg.entities, kg.relations, *splits), new, held_out


if __name__ == "__main__":
    main()
