"""The result of a reproduction: every row of the table, measured or with the reason why it is missing."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cascader.display import emit, html_table
from cascader.errors import DataError
from cascader.evaluation import Evaluation
from cascader.evaluation.comparison import published_mrr
from cascader.evaluation.metrics import CONFIDENCE
from cascader.runs.choices import RowChoice
from cascader.runs.reproduction_plan import LeftOut, emit_left_out

_COLUMNS = ("row", "MRR", f"{CONFIDENCE:.0%} interval", "the paper's", "hits@1", "hits@3", "hits@10")


@dataclass(frozen=True, eq=False)
class ReproducedRow:
    """A row of the table: its evaluation, or why there is none."""

    name: str
    choice: RowChoice | None
    evaluation: Evaluation | None
    left_out: LeftOut | None

    @property
    def cells(self) -> list[str]:
        """The row as it is printed."""
        if self.evaluation is None:
            return [self.name, "" if self.left_out is None else self.left_out.status, *[""] * (len(_COLUMNS) - 2)]
        published = published_mrr(self.evaluation.dataset, self.name)
        return [
            self.name,
            f"{self.evaluation.mrr:.4f}",
            "{:.4f} to {:.4f}".format(*self.evaluation.intervals["mrr"]),
            "" if published is None else f"{published:.4f}",
            *(f"{self.evaluation.metrics[metric]:.4f}" for metric in ("hits@1", "hits@3", "hits@10")),
        ]

    def as_dict(self, folder: Path) -> dict[str, Any]:
        """Describe the row for `reproduction.json`."""
        if self.evaluation is None or self.choice is None:
            return {"name": self.name, **({} if self.left_out is None else vars(self.left_out))}
        return {
            "name": self.name,
            "status": "measured",
            "mrr": self.evaluation.mrr,
            "interval": list(self.evaluation.intervals["mrr"]),
            "published": published_mrr(self.evaluation.dataset, self.name),
            "file": f"results/{self.name}.json",
            "again": _evaluate_command(self.name, self.choice, folder),
        }


@dataclass(frozen=True, eq=False, repr=False)
class Reproduction:
    """The rows of a reproduction, in the order of the table; `found["cascade"]` is a row's evaluation."""

    folder: Path
    rows: Sequence[ReproducedRow]
    report: Path | None  # the page; None: nothing was measured

    def __repr__(self) -> str:
        return "\n".join("  ".join(row) for row in (_COLUMNS, *(row.cells for row in self.rows)))

    def _repr_html_(self) -> str:
        return html_table(_COLUMNS, [row.cells for row in self.rows], f"{self.folder}")

    def __getitem__(self, name: str) -> Evaluation:
        for row in self.rows:
            if row.name == name and row.evaluation is not None:
                return row.evaluation
        raise DataError(f"{self.folder} has no result {name!r}. It has: {', '.join(self.evaluations)}.")

    @property
    def evaluations(self) -> dict[str, Evaluation]:
        """What was measured, by name."""
        return {row.name: row.evaluation for row in self.rows if row.evaluation is not None}

    @property
    def left_out(self) -> Mapping[str, LeftOut]:
        """Why rows are missing, by kind."""
        return {row.name: row.left_out for row in self.rows if row.left_out is not None}

    def emit(self) -> None:
        """Report the table, what is missing, and where everything is."""
        emit("table", f"Reproduced in {self.folder}:", _COLUMNS, [row.cells for row in self.rows])
        emit_left_out(self.left_out)
        pages = "" if self.report is None else f", and the report to {self.report}"
        emit("written", f"Written to {self.folder / 'reproduction.json'}{pages}.")


def _evaluate_command(name: str, choice: RowChoice, folder: Path) -> str:
    """The command that measures the row again, from the models in the folder, and writes it elsewhere."""
    words = ["cascader", "evaluate", str(folder), "--tiers", ",".join(choice.tiers), "--weights", choice.weights]
    return shlex.join([*words, "--top", str(choice.top), "--name", name, "--out", str(folder / "again")])
