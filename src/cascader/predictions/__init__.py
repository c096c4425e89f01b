"""Answers for people: by name, with a probability, and with what every tier made of them."""

from cascader.predictions.answering import Answering
from cascader.predictions.new_entities import about_new, entity_of
from cascader.predictions.prediction import Answered, Prediction, Verdict
from cascader.predictions.questions import Rows, every_question, joined, read_questions, read_triples
from cascader.predictions.thresholds import with_threshold

__all__ = [
    "Answered",
    "Answering",
    "Prediction",
    "Rows",
    "Verdict",
    "about_new",
    "entity_of",
    "every_question",
    "joined",
    "read_questions",
    "read_triples",
    "with_threshold",
]
