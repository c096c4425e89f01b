"""Search for an embedding's settings on valid, within a time limit; an interrupted search resumes."""

import math
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cascader.durations import parse_duration
from cascader.errors import DataError, MissingExtraError, SettingsError, TrainingError
from cascader.graph import KnowledgeGraph
from cascader.models.checkpoints import CHECKPOINT
from cascader.models.embeddings.embedding import Embedding
from cascader.models.embeddings.interactions import EMBEDDINGS
from cascader.models.settings import search_space
from cascader.records import Count, Seconds, Share, read_record, write_record
from cascader.storage import read_json, remove

FORMAT = 2
_ADVICE = "Delete it to start the search over."


@dataclass(frozen=True)
class Trial:
    """One training: the settings that were tried, and the result."""

    changes: dict[str, str | int | float | bool]  # to the settings that the search started from
    valid_mrr: Share | None  # None where the training diverged, or time was up before its first validation
    epochs: Count
    seconds: Seconds
    has_diverged: bool = False

    @property
    def figure(self) -> float:
        """What trials are compared by: any MRR is better than none, and none is better than no weights."""
        if self.valid_mrr is None:
            return -math.inf if self.has_diverged else -1.0
        return self.valid_mrr


@dataclass(frozen=True)
class _SavedTrials:
    trials: tuple[Trial, ...]


class Search:
    """Trials of a model's settings, recorded in a folder: `trials.json`, and the weights of the best trial.

    The first trial uses the settings as given, so a search never ends below where it started. Optuna proposes the
    others from all earlier trials and a seed for each trial, so a resumed search makes the same proposals. Settings
    that are `fixed` are not changed.
    """

    def __init__(
        self, model: str, settings: dict[str, Any], kg: KnowledgeGraph, folder: Path, fixed: Collection[str] = ()
    ) -> None:
        if len(kg.valid) == 0:
            raise DataError(f"{kg.name} has no valid triples to search on. Hold some out, or train without --trials.")
        self._model, self._settings, self._kg, self._folder = model, settings, kg, folder
        self._space = {name: values for name, values in search_space(model).items() if name not in fixed}
        self._seed = int(EMBEDDINGS[model](**settings).settings.seed)
        self.trials = self._resumed()

    def run(self, count: int, time_limit: float | str | None = None) -> Embedding:
        """Try until there are `count` trials, or no time is left for another; returns the best embedding."""
        limit = parse_duration(time_limit)
        if count < 1:
            raise SettingsError(f"{count} trials were asked for, expected at least 1.")
        while len(self.trials) < count:
            left = limit - sum(trial.seconds for trial in self.trials)
            if left <= 0:
                break
            self._try(seconds=left / (count - len(self.trials)))
        return EMBEDDINGS[self._model].load(self._trial_folder(self.best), self._kg)

    @property
    def best(self) -> int:
        """The number of the best trial."""
        best = max(range(len(self.trials)), key=lambda number: self.trials[number].figure)
        if self.trials[best].has_diverged:
            raise TrainingError("all trials diverged. Lower learning_rate.")
        return best

    def _try(self, seconds: float) -> None:
        changes = self._proposed() if self.trials else {}
        folder = self._trial_folder(len(self.trials))
        embedding = EMBEDDINGS[self._model](**{**self._settings, **changes})
        try:
            embedding.fit(self._kg, folder=folder, time_limit=seconds)
        except TrainingError:
            self.trials.append(Trial(changes, None, 0, 0.0, has_diverged=True))
        else:
            history = embedding.history_
            embedding.save(folder)
            remove(folder / CHECKPOINT)
            self.trials.append(Trial(changes, history.best_valid, history.epochs, history.seconds))
        self._save()

    def _proposed(self) -> dict[str, Any]:
        """The next settings to try."""
        try:
            import optuna
        except ImportError as error:
            raise MissingExtraError("--trials needs Optuna. Install it with: pip install 'cascader[hpo]'") from error
        from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution

        space: dict[str, BaseDistribution] = {
            name: CategoricalDistribution(values) if isinstance(values, list) else FloatDistribution(**values)
            for name, values in self._space.items()
        }
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        sampler = optuna.samplers.TPESampler(seed=self._seed + len(self.trials), n_startup_trials=8)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        for trial in self.trials[1:]:
            if trial.valid_mrr is not None:
                study.add_trial(
                    optuna.trial.create_trial(params=trial.changes, distributions=space, value=trial.valid_mrr)
                )
        return dict(study.ask(space).params)

    # Saving and resuming.

    def discard_weights(self) -> None:
        """Delete all weights, and keep the record of the trials."""
        for folder in self._folder.glob("trial-*"):
            remove(folder)

    def _trial_folder(self, number: int) -> Path:
        return self._folder / f"trial-{number:03d}"

    def _identity(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "model": self._model,
            "data_hash": self._kg.data_hash,
            "settings": self._settings,
            "space": self._space,
        }

    def _save(self) -> None:
        """Record the trials, then delete the weights of all but the best."""
        write_record(self._folder / "trials.json", {**self._identity(), "trials": [asdict(t) for t in self.trials]})
        for number, trial in enumerate(self.trials):
            if trial.has_diverged or number != self.best:
                remove(self._trial_folder(number))

    def _resumed(self) -> list[Trial]:
        path = self._folder / "trials.json"
        if not path.exists():
            return []
        found = read_json(path)
        for name, wanted in self._identity().items():
            if found.get(name) != wanted:
                raise DataError(
                    f"{path} is a search with {name} {found.get(name)!r}, but now it is {wanted!r}. Choose "
                    "another folder, or delete the file to start over."
                )
        trials = read_record(path, _SavedTrials, FORMAT, _ADVICE).trials
        for trial in trials:
            if trial.changes.keys() - self._space.keys():
                raise DataError(f"{path} has changes {trial.changes}, expected some of {list(self._space)}. {_ADVICE}")
        return list(trials)
