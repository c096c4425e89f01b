"""The quantiles of a gold answer's rank, for all quantiles at once, from the features of a query."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from cascader.graph import FloatArray, IntArray

_ROWS_AT_ONCE = 256


class QuantileNetwork(nn.Module):
    """One hidden layer gives a location and weights, none negative, of functions that rise with the quantile.

    A higher quantile so never gives a lower rank, whatever was learnt.
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
        """Features as the hidden layer takes them; shape (queries, inputs)."""
        parts = torch.split(torch.from_numpy(features), _ROWS_AT_ONCE)  # in double precision they are large
        return torch.cat([(part.double() - self.mean) @ self.projection for part in parts])

    def rows_of(self, asked: IntArray) -> Tensor:
        """The row of each query's relation; shape (queries,)."""
        keys = torch.from_numpy(asked)
        if len(self.known_relations) == 0:
            return torch.zeros_like(keys)
        places = torch.searchsorted(self.known_relations, keys).clamp(max=len(self.known_relations) - 1)
        return torch.where(self.known_relations[places] == keys, places + 1, 0)

    def forward(self, inputs: Tensor, relation_rows: Tensor, quantiles: Tensor) -> Tensor:
        """The quantiles of log1p(rank), none below 0; shape (queries, quantiles)."""
        of_relation = functional.embedding(relation_rows, self.relations)
        hidden = torch.relu(self.hidden(torch.cat([inputs, of_relation], dim=1)))
        location, *weights = self.output(hidden).split(1, dim=1)
        rising = quantiles, -torch.log1p(-quantiles), torch.log(quantiles)
        total = sum((functional.softplus(w) * f for w, f in zip(weights, rising, strict=True)), start=location)
        return functional.softplus(total)  # which is log1p(exp(total)): the total is a logarithm of the rank

    @torch.inference_mode()
    def predict(self, features: FloatArray, asked: IntArray, quantiles: FloatArray) -> FloatArray:
        """The quantiles of each query's gold rank, at least 1; shape (queries, quantiles)."""
        logs = self(self.prepare(features), self.rows_of(asked), torch.from_numpy(quantiles))
        ranks = torch.expm1(logs.clamp(max=50))  # e⁵⁰: beyond any graph, and no overflow
        return ranks.clamp(min=1).numpy()


def network_of(tensors: Mapping[str, Any]) -> QuantileNetwork:
    """The network whose weights these are."""
    weights = {name: torch.as_tensor(values).clone() for name, values in tensors.items()}
    (width, inputs), (rows, relation_width) = weights["projection"].shape, weights["relations"].shape
    network = QuantileNetwork(width, inputs, rows - 1, len(weights["hidden.bias"]), relation_width)
    network.load_state_dict(weights)
    return network
