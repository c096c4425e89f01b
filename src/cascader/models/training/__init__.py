"""What all trained models share: losses, negatives, and a loop that resumes and stops in time."""

from cascader.models.training.loop import CHECKPOINT, Checkpoint, Int8Check, Schedule, Trainable, TrainingHistory, train

__all__ = ["CHECKPOINT", "Checkpoint", "Int8Check", "Schedule", "Trainable", "TrainingHistory", "train"]
