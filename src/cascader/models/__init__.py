"""The models that score answers, from the cheapest up."""

from cascader.models.frequency import Frequency

__all__ = ["Frequency"]
