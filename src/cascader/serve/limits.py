"""What one client may ask of a server that others use too."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """The most of everything that a request may have or wait for."""

    body_bytes: int = 1 << 20
    batch_questions: int = 100
    classify_triples: int = 1000
    seconds: float = 30.0  # until a request is answered, or told that it will not be
    body_seconds: float = 10.0  # until a request has been sent whole
    waiting: int = 1000  # questions of all clients together


@dataclass(frozen=True)
class Batching:
    """How questions of different clients come together."""

    window_seconds: float = 0.003  # how long the first one waits for others
    most: int = 64  # questions in one block
    block_seconds: float = 1.0  # of predicted time in one block: others wait for it
