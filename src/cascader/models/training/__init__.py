"""What all trained models share: losses, negatives, and a loop that resumes and stops in time."""

from cascader.models.training.loop import History, Schedule, Trainable, summary_of, train

__all__ = ["History", "Schedule", "Trainable", "summary_of", "train"]
