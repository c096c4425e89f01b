"""`cascader predict` and `cascader classify`: answers and verdicts from a run."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cascader.cli.console import complain, say, say_table, shortened
from cascader.cli.evaluate import PairsOption, SecondsOption
from cascader.cli.outputs import FormatOption, OutFileOption, chosen_format, put_out
from cascader.errors import DataError, SettingsError
from cascader.graph import Side

if TYPE_CHECKING:
    from cascader.graph import Queries
    from cascader.runs import Prediction, Predictor, Rows, Run, Verdict

RunArgument = Annotated[Path, typer.Argument(help="A folder that `cascader fit` has made.")]
KeepGoingOption = Annotated[
    bool, typer.Option("--keep-going", help="Name the bad rows of a file on standard error, and answer the others.")
]


def predict(
    run: RunArgument,
    entity: Annotated[str, typer.Argument(help="What is given, by id or name.")] = "",
    relation: Annotated[str, typer.Argument(help="By id or name.")] = "",
    side: Annotated[
        Side, typer.Option("--side", help="What is asked for: with head, ENTITY is the tail of the triples.")
    ] = "tail",
    top: Annotated[int, typer.Option("--top", help="Answers to each question.")] = 10,
    file: Annotated[
        Path | None, typer.Option("--file", help="A table of questions: entity, relation and, if they differ, side.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Ask every (entity, relation) that train has an answer to, on both sides.")
    ] = False,
    new: Annotated[
        str, typer.Option("--new", help='An entity that the graph does not have, as "name: description", for ENTITY.')
    ] = "",
    min_probability: Annotated[
        float, typer.Option("--min-probability", min=0, max=1, help="Leave out what is less probable.")
    ] = 0.0,
    known: Annotated[bool, typer.Option("--known", help="Let known facts take part, and mark them.")] = False,
    why: Annotated[bool, typer.Option("--why", help="Say what each tier made of each answer.")] = False,
    seconds: SecondsOption = None,
    pairs: PairsOption = None,
    form: FormatOption = None,
    out: OutFileOption = None,
    keep_going: KeepGoingOption = False,
) -> None:
    """Answer (ENTITY, RELATION, ?) from a run: the best entities that the graph does not have there yet.

    A probability holds for questions that have an answer which the graph lacks: it is learnt on such.

    Example: cascader predict runs/demo Germany "has the part" --why

    `cascader demo` makes that run.
    """
    from cascader.cascade import Deadline
    from cascader.runs import load_run, parse_entity
    from cascader.tuning import Budget

    output = chosen_format(form, out)
    if new and not relation:  # it stands for the entity, so that what comes first is the relation
        entity, relation = "", entity
    _check_one_way(bool(entity), file is not None, every, bool(new))
    if bool(entity or new) != bool(relation):
        raise SettingsError(f"{entity or new!r} alone is no question. Write: cascader predict {run} ENTITY RELATION")
    loaded = load_run(run)
    if new:
        queries = loaded.new_query(relation, side)
    else:
        queries = _questions(loaded, entity, relation, side, file, every, keep_going)
    answering = loaded.answering(Budget(seconds, pairs), len(queries))
    if new:
        answering = loaded.answering_new(answering, parse_entity(new))
    deadline = None if seconds is None else Deadline(seconds)
    found = answering.predict(queries, top=top, with_known=known, min_probability=min_probability, deadline=deadline)
    if output == "table":
        for answers in found:
            if answers or not every:
                _say_answers(answers, why)
        _say_caveats(answering)
        return
    flat = [answer for answers in found for answer in answers]
    rows = [{**answer.as_row(), **({"why": answer.why()} if why else {})} for answer in flat]
    put_out(rows, [answer.triple for answer in flat], output, out)


def classify(
    run: RunArgument,
    file: Annotated[Path, typer.Argument(help="A table of triples by id or name: head, relation, tail.")],
    form: FormatOption = None,
    out: OutFileOption = None,
    keep_going: KeepGoingOption = False,
) -> None:
    """Say which triples are true, each with its probability; from which one on, was chosen on triples held back.

    Example: cascader classify runs/demo runs/demo/graph/test.parquet

    `cascader demo` makes that run.
    """
    import numpy as np

    from cascader.runs import load_run, read_triples

    output = chosen_format(form, out)
    loaded = load_run(run)
    triples = np.array(_readable(read_triples(file, loaded.kg), file, keep_going), dtype=np.int32)
    answering = loaded.judging(loaded.answering(question_count=2 * len(triples)))
    verdicts = answering.classify(triples)
    if output == "table":
        _say_verdicts(verdicts, answering)
    else:
        put_out([verdict.as_row() for verdict in verdicts], [v.triple for v in verdicts if v.is_true], output, out)


def _check_one_way(by_name: bool, by_file: bool, every: bool, is_new: bool) -> None:
    possible = {"ENTITY RELATION": by_name, "--file": by_file, "--all": every, "--new": is_new}
    ways = [way for way, is_used in possible.items() if is_used]
    if len(ways) != 1:
        found = f"{' and '.join(ways)} cannot go together" if ways else "no question was asked"
        raise SettingsError(f"{found}. Give ENTITY RELATION, or --file FILE, or --all, or --new TEXT RELATION.")


def _questions(
    run: "Run", entity: str, relation: str, side: Side, file: Path | None, every: bool, keep_going: bool
) -> "Queries":
    from cascader.runs import every_question, joined, read_questions

    if every:
        return every_question(run.kg)
    if file is None:
        return run.kg.query(entity, relation, side)
    return joined(_readable(read_questions(file, run.kg, side), file, keep_going))


def _readable(rows: "Rows[Any]", file: Path, keep_going: bool) -> list[Any]:
    """The rows that can be answered; the others are named, here or in an error."""
    if not keep_going:
        return rows.required()
    for problem in rows.problems:
        complain(f"passed over: {problem}")
    if not rows.found:
        raise DataError(f"no row of {file} can be answered. Mend the rows that are named above.")
    return rows.found


def _say_answers(answers: Sequence["Prediction"], why: bool) -> None:
    if not answers:
        say("There is no answer that is not known, or probable enough.")
        return
    first = answers[0]
    anchor, relation = shortened(first.anchor.name), shortened(first.relation.name)
    say(f"({anchor}, {relation}, ?)" if first.side == "tail" else f"(?, {relation}, {anchor})")
    tiers = [f"after {trace.tier}" for trace in first.trace]
    has_ids = any(answer.name != answer.id for answer in answers)
    columns = ["rank", "name", *(["id"] if has_ids else []), "probability", *tiers]
    rows = [
        [
            str(answer.rank),
            shortened(answer.name) + (" (known)" if answer.is_known else ""),
            *([answer.id] if has_ids else []),
            percent(answer.probability),
            *(str(trace.rank) for trace in answer.trace),
        ]
        for answer in answers
    ]
    say_table(columns, rows, numbers=["rank", "probability", *tiers])
    for answer in answers if why else ():
        say(f"{answer.rank}. {shortened(answer.name)}")
        for line in answer.why():
            say(f"   {line}")


def _say_caveats(answering: "Predictor") -> None:
    if answering.new:
        say("No probabilities: valid can teach them for entities that were trained, and not for new ones.")
    elif answering.calibration is None:
        say("No probabilities: the graph has no valid triples to learn them on.")


def _say_verdicts(verdicts: Sequence["Verdict"], answering: "Predictor") -> None:
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
    say_table(["head", "relation", "tail", "probability", "verdict"], rows, numbers=["probability"])
    assert answering.calibration is not None and answering.calibration.threshold is not None  # noqa: S101, PT018
    threshold = answering.calibration.threshold
    say(
        f"True from {percent(threshold.probability)} on: right for {threshold.accuracy:.1%} of other triples of valid "
        "and as many corrupted ones."
    )


def percent(probability: float | None) -> str:
    """A probability for people; what is below a tenth of a percent is said to be so."""
    if probability is None:
        return "–"
    return "< 0.1 %" if probability < 0.001 else f"{100 * probability:.1f} %"
