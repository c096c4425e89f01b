"""`cascader predict` and `cascader classify`: answers to questions, and verdicts on triples, from a run."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from cascader.cli.console import (
    FormatOption,
    OutFileOption,
    OutputFormat,
    chosen_format,
    echo,
    echo_error,
    echo_table,
    shortened,
    write_rows_as,
)
from cascader.cli.options import (
    PairsOption,
    RunArgument,
    ShardOption,
    TimeLimitOption,
    VerifyOption,
    budget_of,
    echo_share,
    share_engine,
    with_device_option,
    with_engine_options,
)
from cascader.errors import DataError, SettingsError, UnscoredError
from cascader.graph import Side
from cascader.wording import counted

if TYPE_CHECKING:
    from cascader.graph import Queries
    from cascader.runs import Link, Prediction, Predictor, Rows, Run, TierReason, Verdict
    from cascader.scoring.engine import Engine
    from cascader.scoring.shares import ShareEngine
    from cascader.tuning import Budget


KeepGoingOption = Annotated[
    bool, typer.Option("--keep-going", help="Report bad rows on standard error, and continue with the rest.")
]
Found = TypeVar("Found")
#: Longer reasons are cut: whoever needs all of one reads it in a file, or on the page.
_LONGEST_REASON = 300
#: Links that are printed; a file has them all.
_MOST_LINKS = 50


@with_engine_options
@with_device_option
def predict(
    run: RunArgument,
    entity: Annotated[str, typer.Argument(help="The given entity, by id or name.")] = "",
    relation: Annotated[str, typer.Argument(help="The relation, by id or name.")] = "",
    side: Annotated[
        Side, typer.Option("--side", help="The side that is asked for: with head, ENTITY is the tail of the triples.")
    ] = "tail",
    top: Annotated[int, typer.Option("--top", help="The number of answers to each question.")] = 10,
    file: Annotated[
        Path | None, typer.Option("--file", help="A table of questions: entity, relation and, optionally, side.")
    ] = None,
    every: Annotated[
        bool,
        typer.Option(
            "--all",
            help="List every missing link, once and the most probable first: ask every (entity, relation) that train "
            "has an answer to, on both sides.",
        ),
    ] = False,
    new: Annotated[
        str,
        typer.Option(
            "--new", help='An entity that the graph does not have, as "name: description", instead of ENTITY.'
        ),
    ] = "",
    min_probability: Annotated[
        float, typer.Option("--min-probability", min=0, max=1, help="Leave out less probable answers.")
    ] = 0.0,
    known: Annotated[bool, typer.Option("--known", help="Include known answers, and mark them.")] = False,
    why: Annotated[bool, typer.Option("--why", help="Give the reasons for each answer.")] = False,
    time_limit: TimeLimitOption = None,
    pairs: PairsOption = None,
    shard: ShardOption = None,
    form: FormatOption = None,
    out: OutFileOption = None,
    keep_going: KeepGoingOption = False,
    verify: VerifyOption = True,
    *,
    engine: "Engine",
) -> None:
    """Answer (ENTITY, RELATION, ?) from a run: the best entities that are not yet answers in the graph.

    Probabilities assume that an answer is missing from the graph. With --all they are calibrated for questions that may
    have none.

    Example: cascader predict runs/demo Germany "has the part" --why

    `cascader demo` makes that run.
    """
    from cascader.cascade import Deadline
    from cascader.runs import PREDICTION_COLUMNS, load_run, parse_entity

    output = chosen_format(form, out if shard is None else None)
    if new and not relation:  # it replaces the entity, so the first argument is the relation
        entity, relation = "", entity
    _check_one_way(bool(entity), file is not None, every, bool(new))
    if bool(entity or new) != bool(relation):
        raise SettingsError(f"{entity or new!r} is not a question. Write: cascader predict {run} ENTITY RELATION")
    if shard is not None:
        _check_shares(file is not None or every, time_limit)
    budget, loaded = budget_of(time_limit, pairs), load_run(run, verify=verify)
    if shard is not None:
        share = share_engine(shard, out or loaded.folder.shares, engine)
        queries = None if every else _queries(loaded, entity, relation, side, file, keep_going)
        echo_share(share, run, out, _read_share(loaded, queries, known, budget, share))
        return
    if every:
        _list_links(loaded, budget, top, min_probability, known, why, output, out, engine)
        return
    queries = loaded.new_query(relation, side) if new else _queries(loaded, entity, relation, side, file, keep_going)
    predictor = loaded.predictor(budget, len(queries), engine)
    if new:
        predictor = loaded.for_new_entity(predictor, parse_entity(new))
    deadline = None if budget.seconds is None else Deadline(budget.seconds)
    found = predictor.answer(queries, top=top, with_known=known, min_probability=min_probability, deadline=deadline)
    if output == "table":
        for answers in found:
            echo_answers(answers, why)
        _echo_caveats(predictor)
        return
    flat = [answer for answers in found for answer in answers]
    rows = [{**answer.as_row(), **({"why": _why(answer, output)} if why else {})} for answer in flat]
    columns = [*PREDICTION_COLUMNS, *(f"rank_after_{tier}" for tier in predictor.cascade.scorers), *(["why"] * why)]
    write_rows_as(rows, [answer.triple for answer in flat], output, out, columns)


def _list_links(
    run: "Run",
    budget: "Budget",
    top: int,
    min_probability: float,
    known: bool,
    why: bool,
    output: OutputFormat,
    out: Path | None,
    engine: "Engine",
) -> None:
    """Print or write the work list: one row a link."""
    from cascader.cascade import Deadline
    from cascader.runs import LINK_COLUMNS, WorkList, every_question

    if known:
        raise SettingsError("--all lists the links that the graph lacks, so --known has nothing to add. Leave it out.")
    predictor = run.for_open_questions(run.predictor(budget, 2 * len(every_question(run.kg)), engine))
    deadline = None if budget.seconds is None else Deadline(budget.seconds)
    links = WorkList(predictor, None, min_probability, top, deadline).made()
    if output == "table":
        _echo_links(links, run.folder.address, why)
        _echo_caveats(predictor)
        return
    rows = [{**link.as_row(), **({"why": _why(link.found, output)} if why else {})} for link in links]
    columns = [*LINK_COLUMNS, *(["why"] * why)]
    write_rows_as(rows if output != "nt" else [], [link.triple for link in links], output, out, columns)


def _echo_links(links: Sequence["Link"], run: str, why: bool) -> None:
    from cascader.runs import percent

    rows = [
        [
            percent(link.probability),
            *(shortened(each.name, 40) for each in (link.head, link.relation, link.tail)),
            link.found.brief_reason(),
        ]
        for link in links[:_MOST_LINKS]
    ]
    echo_table(["probability", "head", "relation", "tail", "reason"], rows, numbers=["probability"])
    for link in links[:_MOST_LINKS] if why else ():
        echo(f"{shortened(str(link), 120)}")
        _echo_grounds(link.found)
    if len(links) > _MOST_LINKS:
        echo(f"These are {_MOST_LINKS} of {len(links):,} links. All of them: --out links.tsv")
    echo(f"Go through them, and accept or reject each: cascader review {run}")


def _check_shares(has_many: bool, time_limit: str | None) -> None:
    if not has_many:
        raise SettingsError("--shard needs many questions. Give --file FILE, or --all.")
    if time_limit is not None:
        raise SettingsError("--shard and --time-limit cannot be combined.")


def _read_share(run: "Run", queries: "Queries | None", known: bool, budget: "Budget", engine: "ShareEngine") -> bool:
    """Read a share of the pairs of some questions, or of all; return whether more would be read after a merge."""
    from cascader.runs import WorkList, every_question, read_blocks

    count = 2 * len(every_question(run.kg)) if queries is None else len(queries)
    try:
        predictor = run.predictor(budget, count, engine)
        if queries is None:
            predictor = run.for_open_questions(predictor)
    except UnscoredError:  # valid has to choose or to calibrate first, from pairs of its own
        return True
    blocks = WorkList(predictor, None).blocks() if queries is None else predictor.blocks(queries, known)
    return read_blocks(predictor.cascade, blocks)


def _why(answer: "Prediction", output: OutputFormat) -> list[str] | dict[str, Any]:
    """The reasons as a JSON object where the format has such, otherwise in words."""
    return answer.why_as_dict() if output == "jsonl" else answer.why()


def _check_one_way(by_name: bool, by_file: bool, every: bool, is_new: bool) -> None:
    possible = {"ENTITY RELATION": by_name, "--file": by_file, "--all": every, "--new": is_new}
    ways = [way for way, is_used in possible.items() if is_used]
    if len(ways) != 1:
        found = f"{' and '.join(ways)} cannot be combined" if ways else "no question was asked"
        raise SettingsError(f"{found}. Give ENTITY RELATION, or --file FILE, or --all, or --new TEXT RELATION.")


def _queries(run: "Run", entity: str, relation: str, side: Side, file: Path | None, keep_going: bool) -> "Queries":
    from cascader.runs import joined, read_questions

    if file is None:
        return run.kg.query(entity, relation, side)
    return joined(readable(read_questions(file, run.kg, side), file, keep_going))


def readable(rows: "Rows[Found]", file: Path, keep_going: bool) -> list[Found]:
    """Return the rows that can be answered, and report the others here or in an error."""
    if not keep_going:
        return rows.required()
    for problem in rows.problems:
        echo_error(f"skipped: {problem}")
    if not rows.found:
        raise DataError(f"no row of {file} can be answered. Correct the rows that are named above.")
    return rows.found


def echo_answers(answers: Sequence["Prediction"], why: bool) -> None:
    """Print the answers to one question as a table and, with `why`, the reasons for each."""
    from cascader.runs import percent

    if not answers:
        echo("There is no answer that is new and probable enough.")
        return
    first = answers[0]
    anchor, relation = shortened(first.anchor.name), shortened(first.relation.name)
    echo(f"({anchor}, {relation}, ?)" if first.side == "tail" else f"(?, {relation}, {anchor})")
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
    echo_table(columns, rows, numbers=["rank", "probability", *tiers])
    for answer in answers if why else ():
        echo(f"{answer.rank}. {shortened(answer.name)}")
        _echo_grounds(answer)


def _echo_grounds(answer: "Prediction") -> None:
    """Print why an answer stands where it does: a line for all ranks, and then one for each reason."""
    echo(f"   {'; '.join(trace.in_words() for trace in answer.trace)}")
    for reason in answer.reasons:
        echo_reason(reason)


def echo_reason(reason: "TierReason") -> None:
    """Print one reason, with those of its facts that its words do not name."""
    facts = f" ({'; '.join(untold)})" if (untold := reason.untold()) else ""
    echo(f"   {shortened(reason.in_words() + facts, _LONGEST_REASON)}")


def _echo_caveats(predictor: "Predictor") -> None:
    if predictor.new:
        echo("No probabilities: they can be calibrated only for entities that were trained, not for new ones.")
    elif predictor.calibration is None:
        echo("No probabilities: the graph has no valid triples to calibrate them on.")


@with_engine_options
@with_device_option
def classify(
    run: RunArgument,
    file: Annotated[Path, typer.Argument(help="A table of triples by id or name: head, relation, tail.")],
    form: FormatOption = None,
    out: OutFileOption = None,
    keep_going: KeepGoingOption = False,
    verify: VerifyOption = True,
    *,
    engine: "Engine",
) -> None:
    """Judge triples as true or false, with a probability learned from held-out facts and near misses.

    Example: cascader classify runs/demo runs/demo/graph/test.parquet

    `cascader demo` makes that run.
    """
    import numpy as np

    from cascader.runs import load_run, read_triples

    output = chosen_format(form, out)
    loaded = load_run(run, verify=verify)
    triples = np.array(readable(read_triples(file, loaded.kg), file, keep_going), dtype=np.int32)
    predictor = loaded.with_threshold(loaded.predictor(question_count=2 * len(triples), engine=engine))
    verdicts = predictor.judge(triples)
    if output == "table":
        _echo_verdicts(verdicts, predictor)
    else:
        rows = [verdict.as_row() for verdict in verdicts]
        write_rows_as(rows, [v.triple for v in verdicts if v.is_true], output, out, list(rows[0]))


def _echo_verdicts(verdicts: Sequence["Verdict"], predictor: "Predictor") -> None:
    from cascader.runs import percent

    rows = [
        [
            shortened(verdict.head.name, 40),
            shortened(verdict.relation.name, 40),
            shortened(verdict.tail.name, 40),
            percent(verdict.probability),
            verdict.in_words(),
        ]
        for verdict in verdicts
    ]
    echo_table(["head", "relation", "tail", "probability", "verdict"], rows, numbers=["probability"])
    model = None if predictor.calibration is None else predictor.calibration.verdicts
    if model is None:
        return
    counts = Counter(verdict.in_words() for verdict in verdicts)
    echo(f"{', '.join(f'{counts[words]:,} {words}' for words in sorted(counts, reverse=True))}.")
    also = f" Verdicts have also learned from {counted(model.labels, 'label')}." if model.labels else ""
    right = f"which is right for {percent(model.accuracy)} of other valid triples and as many near misses"
    echo(f"Judged true at {percent(model.threshold)} or above, {right}.{also}")
