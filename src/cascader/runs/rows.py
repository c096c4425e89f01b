"""The rows that a reproduction measures, and the tiers they are made of: the paper's tables, and ours beside them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cascader.runs.measurement import SumWeights
from cascader.tuning import READ_TOP

#: The embeddings by tier; which of them is the best, valid says.
EMBEDDINGS = {"kge": "complex", "kge2": "rotate", "kge3": "rescal", "kge4": "transe"}
#: What the graph itself says, with the prior and without it.
_PLAIN = ("rules", "similarity", *EMBEDDINGS)
_STRUCTURE = ("plausibility", *_PLAIN)
#: The paper's language models, which are compared with ours: they learn beside the embeddings alone.
PAPER_TIERS = {"dual2": {"objective": "star"}, "cross2": {"objective": "kg-bert"}}
#: Our own tiers that read texts and score every entity: the dual encoder, the context encoder and late interaction.
_TEXT = ("dual", "dual3", "late")
#: What stands for the embeddings with the best and the second best MRR on valid.
BEST, SECOND = "best", "second"


@dataclass(frozen=True)
class Row:
    """A result: the tiers that are added up or tuned, and how valid weighs them."""

    name: str  # "{models}" stands for the kinds of the embeddings that valid chose
    tiers: tuple[str, ...]
    weights: SumWeights = "joint"
    needs: tuple[str, ...] | None = None  # the tiers without which there is no such row; None: all
    reads_everything: bool = False  # every entity is read together with the question, as KG-BERT does on its own

    @property
    def kind(self) -> str:
        """The name without the embeddings, which only valid knows."""
        return self.name.replace("-{models}", "")

    @property
    def needed(self) -> tuple[str, ...]:
        """The tiers without which there is no such row."""
        return self.tiers if self.needs is None else self.needs

    def top(self, entity_count: int) -> int:
        """The number of candidates per question that a tier which reads pairs is given."""
        return entity_count if self.reads_everything else READ_TOP


#: In the order of the table.
ROWS = (
    *(Row(f"kge-{kind}", (tier,)) for tier, kind in EMBEDDINGS.items()),
    Row("dual-star", ("dual2",)),
    Row("cross-kg-bert", ("cross2",), reads_everything=True),
    Row("kge+kge-{models}", (BEST, SECOND), "alpha"),
    Row("kge+dual-{models}-star", (BEST, "dual2"), "alpha"),
    Row("kge+cross-{models}-kg-bert", (BEST, "cross2"), "alpha"),
    Row("cascader-paper", (BEST, "dual2", "cross2"), "paper"),
    Row("plausibility", ("plausibility",)),
    Row("rules", ("rules",)),
    Row("similarity", ("similarity",)),
    Row("dual-contrastive", ("dual",)),
    Row("dual-context", ("dual3",)),
    Row("late", ("late",)),
    Row("structure-plain", _PLAIN, needs=("rules",)),
    Row("structure", _STRUCTURE, needs=("plausibility", "rules")),
    Row("earlier", (*_STRUCTURE, *_TEXT), needs=("dual",)),
    Row("cascade-plain", (*_PLAIN, *_TEXT, "cross"), "tuned", needs=("cross",)),
    Row("cascade", (*_STRUCTURE, *_TEXT, "cross"), "tuned", needs=("cross",)),
)


@dataclass(frozen=True)
class ResolvedRow:
    """A row with the name and the tiers that it has in a run."""

    row: Row
    name: str
    tiers: tuple[str, ...]


def resolve(row: Row, tiers: Sequence[str], valid_mrr: Mapping[str, float]) -> ResolvedRow:
    """Choose the best embeddings of a row by their MRR on valid, and leave out tiers that the run does not have."""
    best_first = sorted(valid_mrr, key=lambda tier: -valid_mrr[tier])
    chosen = dict(zip((BEST, SECOND), best_first, strict=False))
    wanted = {chosen.get(tier, tier) for tier in row.tiers}
    kinds = [kind for tier, kind in EMBEDDINGS.items() if tier in wanted]
    return ResolvedRow(row, row.name.format(models="-".join(kinds)), tuple(tier for tier in tiers if tier in wanted))


def missing(row: Row, tiers: Sequence[str]) -> list[str]:
    """Return the tiers that a row needs and that are not among these; any embedding can be the best."""
    embeddings = [tier for tier in tiers if tier in EMBEDDINGS]
    stand_ins = dict(zip((BEST, SECOND), embeddings, strict=False))
    return [tier for tier in row.needed if stand_ins.get(tier, tier) not in tiers]
