"""The models that score answers, from the cheapest up."""

from cascader.models.frequency import Frequency
from cascader.models.model import ClosedFormModel, FittedModel, Model, TrainedModel
from cascader.models.registry import load_model, model_class, model_names, register

__all__ = [
    "ClosedFormModel",
    "FittedModel",
    "Frequency",
    "Model",
    "TrainedModel",
    "load_model",
    "model_class",
    "model_names",
    "register",
]
