"""A graph of many questions, and scorers whose quality is known."""

import numpy as np

from cascader.graph import Entity, KnowledgeGraph, Queries, Relation


def graph(entities=40, relations=2, seed=0):
    draw = np.random.default_rng(seed)
    every = [(h, r, t) for h in range(entities) for r in range(relations) for t in range(entities) if h != t]
    chosen = draw.permutation(np.array(every, dtype=np.int32))[: entities * 12]
    names = tuple(Entity(f"e{i}", f"entity {i}") for i in range(entities))
    kinds = tuple(Relation(f"r{i}", f"relation {i}") for i in range(relations))
    cut = len(chosen) // 3
    return KnowledgeGraph("world", names, kinds, chosen[2 * cut :], chosen[cut : 2 * cut], chosen[:cut])


class Noisy:
    """Likes true answers better, by so much; each question's scores have a scale and a level of their own."""

    name = "noisy"

    def __init__(self, kg, gain=2.0, seed=0):
        self._kg, self._gain, self._seed = kg, gain, seed
        self._true = kg.known()

    def score_all(self, queries):
        count = len(self._kg.entities)
        rows = []
        true = self._true.of(queries)
        for row, key in enumerate(queries.keys(count, len(self._kg.relations))):
            draw = np.random.default_rng([self._seed, int(key)])
            scores = draw.normal(size=count)
            scores[true[row]] += self._gain
            rows.append(draw.uniform(0.1, 10) * scores + draw.uniform(-50, 50))
        return np.array(rows, dtype=np.float32).reshape(-1, count)

    def score(self, queries, candidates):
        return self.score_all(queries)[candidates.rows, candidates.ids]


def questions(kg, split="test"):
    return Queries.from_triples(kg.split(split)).unique()[0]
