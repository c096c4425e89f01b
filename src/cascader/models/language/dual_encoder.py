"""Tier 2: a dual encoder. It reads every text once; all answers to a question are then one matrix product."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cascader.errors import DataError, NotFittedError
from cascader.evaluation.protocol import known_splits, mean_reciprocal_rank
from cascader.graph import Candidates, FloatArray, KnowledgeGraph, Queries
from cascader.models.embeddings.embedding import directed
from cascader.models.keeping import read_model
from cascader.models.language.base_model import load_base_model
from cascader.models.language.dual_training import DualTraining
from cascader.models.language.readers import FixedReader, Reader, TextReader
from cascader.models.language.recipes import DualRecipe
from cascader.models.language.sampling import sampled
from cascader.models.language.texts import GraphTexts
from cascader.models.language.towers import TOWERS, Towers
from cascader.scorer import Scorer
from cascader.storage import atomic_file, write_json
from cascader.training import Schedule, summary_of, train
from cascader.training.checkpoints import Checkpoint
from cascader.tuning.alphas import best_sum

FORMAT = 1
_ENTITIES_AT_ONCE = 1024
_PAIRS_AT_ONCE = 200_000
#: A look at valid while training need not be at all of it.
_VALID_TRIPLES = 1000


class DualEncoder:
    """Scores an answer by how near its text is to the question's.

    The settings are those of `DualRecipe`. `fit(kg, earlier=kge)` trains for the sum with an earlier tier: it stops
    when the sum no longer gains on valid, and can take its hard negatives from there.
    """

    name = "dual"
    entities_: Tensor  # (entities, coordinates)

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - the settings of DualRecipe, by name
        self.recipe = DualRecipe.of(settings)
        self.history_: dict[str, Any] = {}

    # Learning.

    def fit(
        self,
        kg: KnowledgeGraph,
        folder: str | Path | None = None,
        max_minutes: float = np.inf,
        earlier: Scorer | None = None,
    ) -> "DualEncoder":
        """Train on the graph's texts; with a `folder`, interrupted training goes on there where it stopped."""
        if len(kg.train) == 0:
            raise DataError(f"{kg.name} has no train triples to learn from. Add some, or hold fewer back.")
        base = load_base_model(self.recipe.base)
        reader = TextReader(base, GraphTexts.of(kg, base, self.recipe.max_tokens), self.recipe.tuned_layers)
        self._build(base.width, kg)
        queries = Queries.from_triples(sampled(kg.valid, _VALID_TRIPLES, self.recipe.seed))

        def judge() -> float | None:
            """How good the towers are now, in the sum if there is one."""
            if len(queries) == 0:
                return None
            self._take(reader, len(kg.entities))
            if earlier is None:
                return mean_reciprocal_rank(self, queries, kg.known(known_splits("valid")))
            return best_sum(earlier, self, kg, queries).mrr

        training = DualTraining(self._towers, reader, self.recipe, kg, earlier, judge)
        schedule = Schedule(self.recipe.epochs, self.recipe.valid_every, self.recipe.patience, max_minutes)
        self.history_ = train(training, schedule, self._checkpoint(kg, folder, earlier)).as_dict()
        self._towers.eval()
        reader.eval()
        self._base = base
        self._take(self._fixed(reader, kg), len(kg.entities))
        return self

    def _build(self, width: int, kg: KnowledgeGraph) -> None:
        self._relation_count = len(kg.relations)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.recipe.seed)
            self._towers: Towers = TOWERS[self.recipe.objective](width, len(kg.relations), self.recipe)

    def _checkpoint(self, kg: KnowledgeGraph, folder: str | Path | None, earlier: Scorer | None) -> Checkpoint | None:
        if folder is None:
            return None
        settings = {k: v for k, v in self.recipe.as_dict().items() if k not in ("epochs", "patience")}
        identity = {"model": self.name, "data hash": kg.data_hash, "for a sum": earlier is not None, **settings}
        return Checkpoint(Path(folder) / "checkpoint.safetensors", identity)

    @torch.no_grad()
    def _take(self, reader: Reader, entity_count: int) -> None:
        """Compute the vectors of all entities anew, with what is learnt so far."""
        self._reader = reader
        places = torch.split(torch.arange(entity_count), _ENTITIES_AT_ONCE)
        self.entities_ = torch.cat([self._towers.entity_vectors(reader, some) for some in places])

    @torch.no_grad()
    def _fixed(self, reader: TextReader, kg: KnowledgeGraph) -> FixedReader:
        """Read all texts a last time: from now on their vectors stay as they are."""
        places = torch.split(torch.arange(len(kg.entities)), _ENTITIES_AT_ONCE)
        entities = torch.cat([reader.entities(some) for some in places])
        return FixedReader(entities, reader.relations(torch.arange(2 * len(kg.relations))), lambda: reader)

    # Scoring.

    def score_all(self, queries: Queries) -> FloatArray:
        """Score every entity; shape (queries, entities)."""
        with torch.inference_mode():
            return (self._questions(queries) @ self.entities_.T).numpy()

    def score(self, queries: Queries, candidates: Candidates) -> FloatArray:
        """Score the candidates of each query; shape (candidates,)."""
        with torch.inference_mode():
            questions = self._questions(queries)
            rows, ids = torch.from_numpy(candidates.rows), torch.from_numpy(candidates.ids).long()
            scores = torch.empty(len(ids))
            for start in range(0, len(ids), _PAIRS_AT_ONCE):
                some = slice(start, start + _PAIRS_AT_ONCE)
                scores[some] = (questions[rows[some]] * self.entities_[ids[some]]).sum(dim=1)
            return scores.numpy()

    def _questions(self, queries: Queries) -> Tensor:
        """Vectors of questions, each distinct one read once; shape (queries, coordinates)."""
        if not hasattr(self, "entities_"):
            raise NotFittedError("the dual encoder has not been fitted. Call fit(kg), or load it from a folder.")
        distinct, question_of = queries.questions()
        anchors = torch.from_numpy(distinct.anchors).long()
        relations = torch.from_numpy(directed(distinct, self._relation_count))
        return self._towers.question_vectors(self._reader, anchors, relations)[torch.from_numpy(question_of)]

    # Keeping.

    @property
    def parameter_count(self) -> int:
        """How many numbers it consists of, the language model's among them."""
        if not isinstance(self._reader, FixedReader):
            raise NotFittedError("the dual encoder is still being trained.")
        of_model = sum(parameter.numel() for parameter in self._reader.model.base.encoder.parameters())
        return of_model + sum(parameter.numel() for parameter in self._towers.parameters())

    def about(self) -> dict[str, Any]:
        """What there is to tell beside a figure: settings, and how the training went."""
        return {"model": self.name, "recipe": self.recipe.as_dict(), "training": summary_of(self.history_)}

    def save(self, folder: str | Path) -> None:
        """Write the tuned language model in transformers' layout, then `model.safetensors`, then `model.json`."""
        from safetensors.torch import save_file

        folder = Path(folder)
        if self.recipe.tuned_layers:
            self._base.save(folder / "encoder")
        with atomic_file(folder / "model.safetensors") as temporary:
            save_file(self._tensors(), temporary)
        saved = {"format": FORMAT, "model": self.name, "recipe": self.recipe.as_dict(), "history": self.history_}
        write_json(folder / "model.json", saved)

    def _tensors(self) -> dict[str, Tensor]:
        tensors = {
            "entities": self.entities_,
            "texts/entities": self._reader.entities(torch.arange(len(self.entities_))),
            "texts/relations": self._reader.relations(torch.arange(2 * self._relation_count)),
        }
        tensors |= {f"towers/{name}": parameter for name, parameter in self._towers.state_dict().items()}
        return {name: tensor.contiguous() for name, tensor in tensors.items()}

    def load_tensors(self, tensors: Mapping[str, Tensor], kg: KnowledgeGraph, folder: Path) -> "DualEncoder":
        """Take what was learnt before, after a look at its shapes."""
        texts = {part: tensors[f"texts/{part}"] for part in ("entities", "relations")}
        expected = {"entities": len(kg.entities), "relations": 2 * len(kg.relations)}
        for part, vectors in texts.items():
            if len(vectors) != expected[part]:
                raise DataError(
                    f"this dual encoder has texts for {len(vectors):,} {part}, but {kg.name} needs {expected[part]:,}. "
                    "It was trained on another graph."
                )
        self._build(texts["entities"].shape[1], kg)
        prefix = "towers/"
        learnt = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
        self._towers.load_state_dict(learnt)
        self._towers.eval()
        self.entities_ = tensors["entities"]
        self._reader = FixedReader(texts["entities"], texts["relations"], lambda: self._reread(kg, folder))
        return self

    def _reread(self, kg: KnowledgeGraph, folder: Path) -> TextReader:
        """The language model itself, for what has no vector yet."""
        self._base = load_base_model(str(folder / "encoder") if self.recipe.tuned_layers else self.recipe.base)
        texts = GraphTexts.of(kg, self._base, self.recipe.max_tokens)
        return TextReader(self._base, texts, self.recipe.tuned_layers).eval()


def load_dual_encoder(folder: str | Path, kg: KnowledgeGraph) -> DualEncoder:
    """Read a dual encoder back that `save` has written."""
    saved, tensors = read_model(Path(folder), DualEncoder.name, FORMAT)
    model = DualEncoder(**saved["recipe"])
    model.history_ = saved["history"]
    return model.load_tensors(tensors, kg, Path(folder))
