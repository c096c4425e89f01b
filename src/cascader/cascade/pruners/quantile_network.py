"""The network that predicts all quantiles of a gold answer's rank at once, and how it is trained."""

import math
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from cascader.cascade.pruners.examples import Examples, FeatureName
from cascader.graph import FloatArray, IntArray

_ROWS_AT_ONCE = 256


class QuantileNetwork(nn.Module):
    """Predicts a location and nonnegative weights of functions that rise with the quantile, from one hidden layer.

    A higher quantile therefore never gives a lower rank, whatever was learned.
    """

    mean: Tensor  # (width,)
    projection: Tensor  # (width, inputs)
    known_relations: Tensor  # (relations,) sorted; relation i has row 1 + i of `relations`, all others row 0

    def __init__(self, width: int, inputs: int, relation_count: int, hidden: int, relation_width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("projection", torch.zeros(width, inputs))
        self.register_buffer("known_relations", torch.zeros(relation_count, dtype=torch.int64))
        self.relations = nn.Parameter(0.1 * torch.randn(relation_count + 1, relation_width))
        self.hidden = nn.Linear(inputs + relation_width, hidden)
        self.output = nn.Linear(hidden, 4)
        self.double()

    def prepare(self, features: FloatArray) -> Tensor:
        """Project the features to the inputs of the hidden layer; shape (queries, inputs)."""
        parts = torch.split(torch.from_numpy(features), _ROWS_AT_ONCE)  # they are large in double precision
        return torch.cat([(part.double() - self.mean) @ self.projection for part in parts])

    def rows_of(self, asked: IntArray) -> Tensor:
        """Find the row of each query's relation; shape (queries,)."""
        keys = torch.from_numpy(asked)
        if len(self.known_relations) == 0:
            return torch.zeros_like(keys)
        places = torch.searchsorted(self.known_relations, keys).clamp(max=len(self.known_relations) - 1)
        return torch.where(self.known_relations[places] == keys, places + 1, 0)

    def forward(self, inputs: Tensor, relation_rows: Tensor, quantiles: Tensor) -> Tensor:
        """Compute the quantiles of log1p(rank), none below 0; shape (queries, quantiles)."""
        of_relation = functional.embedding(relation_rows, self.relations)
        hidden = torch.relu(self.hidden(torch.cat([inputs, of_relation], dim=1)))
        location, *weights = self.output(hidden).split(1, dim=1)
        rising = quantiles, -torch.log1p(-quantiles), torch.log(quantiles)
        total = sum((functional.softplus(w) * f for w, f in zip(weights, rising, strict=True)), start=location)
        return functional.softplus(total)  # log1p(exp(total)): the total is the logarithm of a rank

    @torch.inference_mode()
    def predict(self, features: FloatArray, asked: IntArray, quantiles: FloatArray) -> FloatArray:
        """Predict the quantiles of each query's gold rank, at least 1; shape (queries, quantiles)."""
        logs = self(self.prepare(features), self.rows_of(asked), torch.from_numpy(quantiles))
        ranks = torch.expm1(logs.clamp(max=50))  # e⁵⁰ is beyond any graph, and does not overflow
        return ranks.clamp(min=1).numpy()


def network_of(tensors: Mapping[str, Any]) -> QuantileNetwork:
    """Rebuild a network from its weights."""
    weights = {name: torch.as_tensor(values).clone() for name, values in tensors.items()}
    (width, inputs), (rows, relation_width) = weights["projection"].shape, weights["relations"].shape
    network = QuantileNetwork(width, inputs, rows - 1, len(weights["hidden.bias"]), relation_width)
    network.load_state_dict(weights)
    return network


_RELATION_WIDTH = 4
_RARE = 5  # queries; relations with fewer share a vector
_COMPONENTS = 32
_QUANTILES_PER_STEP = 16
_BATCH = 256
_LEARNING_RATE = 0.005
_PATIENCE = 15
_HELD_OUT = 0.2
_FORGET_RELATION = 0.1


def fit_network(examples: Examples, features: FeatureName, hidden: int, epochs: int, seed: int) -> QuantileNetwork:
    """Train on random quantiles with early stopping on a held-out part; the seed decides everything."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        learning, held_out = examples.split(_HELD_OUT, seed)
        network = _untrained(learning, features, hidden)
        watched = held_out if len(held_out) else learning  # too few to hold any out
        _train(network, _Prepared.of(learning, network), _Prepared.of(watched, network), epochs)
    return network


def _untrained(learning: Examples, features: FeatureName, hidden: int) -> QuantileNetwork:
    """Build a network that starts from the overall ranks and knows nothing about any query."""
    values, counts = np.unique(learning.asked, return_counts=True)
    known = values[counts >= _RARE] if features == "compact" else values[:0]
    mean, projection = _standardizing(learning.features, features)
    relation_width = _RELATION_WIDTH if features == "compact" else 0
    network = QuantileNetwork(len(mean), projection.shape[1], len(known), hidden, relation_width)
    network.mean.copy_(mean)
    network.projection.copy_(projection)
    network.known_relations.copy_(torch.from_numpy(known))
    _start_from_ranks(network, learning.ranks)
    return network


def _standardizing(features: FloatArray, name: FeatureName) -> tuple[Tensor, Tensor]:
    """Compute a mean (width,) and a projection (width, inputs) to inputs with a deviation of at most 1.

    Thousands of sorted scores hardly differ from their neighbors. They are reduced to the directions in which
    queries differ most: the hidden layer still weighs every score, but learns in seconds.
    """
    mean = features.mean(axis=0, dtype=np.float64)
    if name == "compact":
        deviation = features.std(axis=0, dtype=np.float64)
        return torch.from_numpy(mean), torch.from_numpy(np.diag(1 / np.where(deviation > 1e-9, deviation, np.inf)))
    centered = torch.from_numpy(features - mean.astype(np.float32))
    _, sizes, directions = torch.svd_lowrank(centered, q=min(_COMPONENTS, *centered.shape), niter=2)
    # All are divided by the largest deviation: dividing each by its own would amplify noise.
    largest = (sizes.max() / math.sqrt(len(features))).clamp(min=1e-6)
    return torch.from_numpy(mean), (directions / largest).double()


def _start_from_ranks(network: QuantileNetwork, ranks: FloatArray) -> None:
    """Start every query at about the median and the 0.9 quantile of all ranks."""
    median, high = np.log(np.quantile(ranks, [0.5, 0.9]) - 0.5)
    slope = max((high - median) / math.log(5), 0.1)  # -log(1 - q) grows by log 5 from 0.5 to 0.9
    start = torch.tensor([median - slope * math.log(2), -3.0, math.log(math.expm1(slope)), -3.0])
    with torch.no_grad():
        network.output.weight.zero_()
        network.output.bias.copy_(start)


@dataclass(frozen=True, eq=False)
class _Prepared:
    """Examples as tensors for the network."""

    inputs: Tensor  # (queries, inputs)
    relation_rows: Tensor  # (queries,)
    ranks: Tensor  # (queries,)

    @classmethod
    def of(cls, examples: Examples, network: QuantileNetwork) -> "_Prepared":
        ranks = torch.from_numpy(examples.ranks.astype(np.float64))
        return cls(network.prepare(examples.features), network.rows_of(examples.asked), ranks)

    def targets(self) -> Tensor:
        """Return the logarithms of the ranks, each spread at random over the unit interval below it.

        Quantiles of whole numbers jump and cannot be learned; those of the spread ranks can, and are the same when
        rounded up (Machado and Santos Silva, 2005).
        """
        return torch.log1p(self.ranks - torch.rand_like(self.ranks))


def _train(network: QuantileNetwork, learning: _Prepared, held_out: _Prepared, epochs: int) -> None:
    """Minimize the pinball loss with AdamW, and use the weights that were best on the held-out part."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=_LEARNING_RATE, weight_decay=0.01)
    grid = (torch.arange(20, dtype=torch.float64) + 0.5) / 20
    held_out_targets = held_out.targets()
    best, best_loss, waited = deepcopy(network.state_dict()), math.inf, 0
    for _ in range(epochs):
        with torch.no_grad():
            predicted = network(held_out.inputs, held_out.relation_rows, grid)
            loss = float(_pinball(predicted, held_out_targets, grid))
        waited = 0 if loss < best_loss else waited + 1
        if waited == 0:
            best, best_loss = deepcopy(network.state_dict()), loss
        elif waited == _PATIENCE:
            break
        _train_once(network, learning, optimizer)
    network.load_state_dict(best)


def _train_once(network: QuantileNetwork, learning: _Prepared, optimizer: torch.optim.Optimizer) -> None:
    """Train for one epoch, with random quantiles for each batch."""
    targets = learning.targets()
    for some in torch.split(torch.randperm(len(targets)), _BATCH):
        quantiles = torch.rand(_QUANTILES_PER_STEP, dtype=torch.float64).clamp(0.002, 0.998)
        forgotten = torch.rand(len(some)) < _FORGET_RELATION  # so that the vector for unseen relations is learned too
        relation_rows = torch.where(forgotten, 0, learning.relation_rows[some])
        predicted = network(learning.inputs[some], relation_rows, quantiles)
        optimizer.zero_grad()
        _pinball(predicted, targets[some], quantiles).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def _pinball(predicted: Tensor, targets: Tensor, quantiles: Tensor) -> Tensor:
    """Compute the loss that is minimal at the quantile (Koenker and Bassett, 1978), averaged over all quantiles."""
    missing = targets[:, None] - predicted  # (queries, quantiles)
    return torch.maximum(quantiles * missing, (quantiles - 1) * missing).mean()
