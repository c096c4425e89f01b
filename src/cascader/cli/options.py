"""Options that several commands share, among them those that name and load a graph."""

import shlex
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cascader.cli.console import echo
from cascader.datasets import CATALOG, Dataset, Split, load_graph
from cascader.durations import parse_duration
from cascader.errors import SettingsError
from cascader.evaluation import Filtering
from cascader.graph import KnowledgeGraph, SplitName
from cascader.wording import counted

if TYPE_CHECKING:
    from cascader.scoring.engine import Engine, LocalEngine
    from cascader.scoring.ray_engine import RayEngine
    from cascader.scoring.shares import ShareEngine
    from cascader.tuning import Budget


class Clock:
    """When the command began, by time.monotonic(): what it took counts the loading of the graph as well."""

    started = time.monotonic()


@dataclass(frozen=True)
class OpenedGraph:
    """A graph, and its entry in the catalog if it has one."""

    kg: KnowledgeGraph
    dataset: Dataset | None


def open_named(
    graph: Annotated[str, typer.Argument(help="A name that `cascader data list` shows, or a path.")],
    entities: Annotated[Path | None, typer.Option("--entities", help="A table of id, name, description, type.")] = None,
    relations: Annotated[Path | None, typer.Option("--relations", help="A table of id, name.")] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns", help="The columns of head, relation and tail: their names in the header, or numbers, as 1,2,3."
        ),
    ] = None,
    valid: Annotated[
        float, typer.Option("--valid", help="The share to hold out for valid if the graph comes without splits.")
    ] = Split.valid,
    test: Annotated[
        float, typer.Option("--test", help="The share to hold out for test if the graph is not split.")
    ] = Split.test,
    split_seed: Annotated[int, typer.Option("--split-seed", help="The random seed for what is held out.")] = Split.seed,
    allow_unseen: Annotated[
        bool, typer.Option("--allow-unseen", help="Allow entities in valid and test that train does not have.")
    ] = Split.unseen_entities,
) -> OpenedGraph:
    """Load a graph from the catalog, or the user's own with the tables and the split they ask for."""
    split = Split(valid, test, split_seed, allow_unseen)
    chosen = None if columns is None else _three_columns(columns)
    kg = load_graph(graph, entities=entities, relations=relations, split=split, columns=chosen)
    return OpenedGraph(kg, None if Path(graph).exists() else CATALOG[graph.lower()])


def _three_columns(text: str) -> tuple[str, str, str]:
    names = [name.strip() for name in text.split(",")]
    if len(names) != 3:
        raise SettingsError(f"--columns {text!r} names {len(names)}, expected three: HEAD,RELATION,TAIL.")
    head, relation, tail = names
    return head, relation, tail


_OPENING = signature(open_named).parameters


def with_graph_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command whose first parameter is an opened graph the argument and the options to load it."""

    @wraps(command)
    def opening(graph: str, **options: Any) -> None:  # noqa: ANN401 - the command's own
        which = {name: options.pop(name) for name in _OPENING if name in options}
        command(open_named(graph, **which), **options)

    _, *own = signature(command).parameters.values()
    argument, *tables = _OPENING.values()
    keywords = [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in (*own, *tables)]
    return _with_parameters(opening, [argument, *keywords])


def with_device_option(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the option `--device`, and carry it out on that device."""

    @wraps(command)
    def on_device(*arguments: Any, device: str | None = None, **options: Any) -> None:  # noqa: ANN401 - the command's own
        from cascader.models.device import using_device

        with nullcontext() if device is None else using_device(device):
            command(*arguments, **options)

    device = Parameter("device", Parameter.KEYWORD_ONLY, default=None, annotation=DeviceOption)
    return _with_parameters(on_device, [*signature(command).parameters.values(), device])


DeviceOption = Annotated[
    str | None,
    typer.Option(
        "--device", help="Where to compute: auto, cpu, cuda, cuda:1 or mps. [default: CASCADER_DEVICE, or cpu]"
    ),
]
RunArgument = Annotated[str, typer.Argument(help="A folder that `cascader fit` wrote, or its URL.")]
VerifyOption = Annotated[
    bool,
    typer.Option("--verify/--no-verify", help="Check all files of the run against the checksums recorded by fit."),
]
SplitOption = Annotated[
    SplitName, typer.Option("--split", help="The triples to ask for; settings and weights were chosen on valid.")
]
FilteringOption = Annotated[
    Filtering,
    typer.Option(
        "--filtering",
        help="With --split valid: strict lets the true answers of test count as wrong ones.",
    ),
]
TimeLimitOption = Annotated[
    str | None,
    typer.Option(
        "--time-limit", help="How long answering may take in total: 2s, 5m. Picks the best cascade that fits."
    ),
]
PairsOption = Annotated[
    int | None,
    typer.Option(
        "--pairs",
        help="How many pairs of a question and a candidate may be read in all. The best cascade that fits is used.",
    ),
]
ShardOption = Annotated[
    str | None,
    typer.Option(
        "--shard",
        help="Read only a share of the pairs, such as 2/8 for the second of eight, and no more than that; `cascader "
        "merge` puts the shares together.",
    ),
]


def chosen_engine(
    engine: Annotated[
        Literal["local", "ray"],
        typer.Option("--engine", help="What reads texts and pairs: this machine, or a Ray cluster."),
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(
            "--address",
            help="With --engine ray: HOST:PORT of the cluster. [default: RAY_ADDRESS, or a cluster on this machine]",
        ),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(
            "--processes", help="How many processes read. [default: 1, or as many as the Ray cluster has CPUs]"
        ),
    ] = None,
) -> "LocalEngine | RayEngine":
    """Build the engine that the options ask for; it starts nothing before there is work."""
    from cascader.scoring.engine import LocalEngine
    from cascader.scoring.ray_engine import RayEngine

    if engine == "ray":
        return RayEngine(address, processes)
    if address is not None:
        raise SettingsError(f"--address {address} names a Ray cluster. Add: --engine ray")
    return LocalEngine(1 if processes is None else processes)


def with_engine_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command with a parameter `engine` the options to choose it; it is closed when the command ends."""
    choosing = signature(chosen_engine).parameters

    @wraps(command)
    def choosing_first(*arguments: Any, **options: Any) -> None:  # noqa: ANN401 - the command's own
        which = {name: options.pop(name) for name in choosing if name in options}
        with chosen_engine(**which) as engine:
            command(*arguments, engine=engine, **options)

    own = [parameter for name, parameter in signature(command).parameters.items() if name != "engine"]
    more = [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in choosing.values()]
    return _with_parameters(choosing_first, [*own, *more])


def _with_parameters(command: Callable[..., None], parameters: Sequence[Parameter]) -> Callable[..., None]:
    """Let Typer see other parameters: it reads both their signature and their types."""
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def command_line() -> str:
    """The command as it was typed, for the results that it makes."""
    return shlex.join(["cascader", *sys.argv[1:]])


def share_engine(shard: str, folder: Path, engine: "Engine") -> "ShareEngine":
    """Build the engine that scores a share, which others score with the same command but for the share."""
    from cascader.scoring.shares import Share, ShareEngine

    share = Share.parse(shard)
    words = [{shard: "{}", f"--shard={shard}": "--shard={}"}.get(word, word) for word in sys.argv[1:]]
    return ShareEngine(share, folder, engine, shlex.join(["cascader", *words]).replace("'{}'", "{}"))


def echo_share(engine: "ShareEngine", run: str, out: Path | None, needs_more: bool) -> None:
    """Say what a share has scored, and what comes next."""
    count = f"{engine.own_shards:,} of {engine.shards:,} shards, {counted(engine.own_pairs, 'pair')}"
    if not engine.shards:
        echo(f"Share {engine.share}: there is nothing left to read.")
        return
    folders = "" if out is None else " and all folders of shares"
    again = ", and then the same commands again, for what depends on these scores" if needs_more else ""
    echo(
        f"Share {engine.share}: {count}. When all {engine.share.count} are done: cascader merge {run}{folders}{again}."
    )


def budget_of(time_limit: str | None, pairs: int | None) -> "Budget":
    """Build a budget from the two options."""
    from cascader.tuning import Budget

    return Budget(None if time_limit is None else parse_duration(time_limit), pairs)


def parsed_settings(settings: Sequence[str], tiers: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Parse settings of the form name=value or tier.name=value, and group them by tier."""
    parsed: dict[str, dict[str, Any]] = {tier: {} for tier in tiers}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise SettingsError(f"--set {setting!r} has no value. Write it as --set name=value.")
        tier, dot, inner = name.strip().rpartition(".")
        tier = tier if dot else _tier_without_prefix(inner, tiers)
        if tier not in parsed:
            raise SettingsError(f"--set {setting!r} is for the tier {tier!r}, but the tiers are: {', '.join(tiers)}.")
        parsed[tier][inner] = _parsed(value.strip())
    return parsed


def _tier_without_prefix(name: str, tiers: Sequence[str]) -> str:
    """The tier whose settings need no prefix; a setting that only others have is an error that names these."""
    from cascader.models import model_names

    own = "kge" if "kge" in tiers else tiers[0]
    others = [tier for tier in tiers if tier != own and tier in model_names() and name in _settings_of(tier)]
    if others and name not in _settings_of("complex" if own == "kge" else own):
        hints = ", ".join(f"--set {tier}.{name}=..." for tier in others)
        raise SettingsError(f"{own} has no setting {name!r}, but other tiers have. Say which is meant: {hints}")
    return own


def _settings_of(model: str) -> list[str]:
    """The names of a model's settings; a class of the user's own need not list them."""
    from cascader.models import model_class
    from cascader.models.settings import Settings

    settings: type[Settings] = getattr(model_class(model), "settings_class", Settings)
    return list(settings.kinds())


def _parsed(value: str) -> bool | int | float | str:
    """Read true or false, a number in digits from 0 to 9, or else text."""
    if not value.isascii():  # Python would read the digits of any script
        return value
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value
