"""`cascader classify`: verdicts on triples from a run."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cascader.cli.console import FormatOption, OutFileOption, chosen_format, echo, echo_table, shortened, write_rows_as
from cascader.cli.options import RunArgument
from cascader.cli.predict import KeepGoingOption, readable

if TYPE_CHECKING:
    from cascader.runs import Predictor, Verdict


def classify(
    run: RunArgument,
    file: Annotated[Path, typer.Argument(help="A table of triples by id or name: head, relation, tail.")],
    form: FormatOption = None,
    out: OutFileOption = None,
    keep_going: KeepGoingOption = False,
) -> None:
    """Say which triples are true, each with its probability; the threshold was chosen on held-out triples.

    Example: cascader classify runs/demo runs/demo/graph/test.parquet

    `cascader demo` makes that run.
    """
    import numpy as np

    from cascader.runs import load_run, read_triples

    output = chosen_format(form, out)
    loaded = load_run(run)
    triples = np.array(readable(read_triples(file, loaded.kg), file, keep_going), dtype=np.int32)
    predictor = loaded.with_threshold(loaded.predictor(question_count=2 * len(triples)))
    verdicts = predictor.judge(triples)
    if output == "table":
        _echo_verdicts(verdicts, predictor)
    else:
        write_rows_as(
            [verdict.as_row() for verdict in verdicts], [v.triple for v in verdicts if v.is_true], output, out
        )


def _echo_verdicts(verdicts: Sequence["Verdict"], predictor: "Predictor") -> None:
    from cascader.runs import percent

    rows = [
        [
            shortened(verdict.head.name, 40),
            shortened(verdict.relation.name, 40),
            shortened(verdict.tail.name, 40),
            percent(verdict.probability),
            ("true" if verdict.is_true else "false") + (" (known)" if verdict.is_known else ""),
        ]
        for verdict in verdicts
    ]
    echo_table(["head", "relation", "tail", "probability", "verdict"], rows, numbers=["probability"])
    if predictor.calibration is not None and predictor.calibration.threshold is not None:
        threshold = predictor.calibration.threshold
        echo(
            f"Judged true at {percent(threshold.probability)} or above, which is right for {threshold.accuracy:.1%} of "
            "other valid triples and as many corrupted ones."
        )
