"""Turn scores into probabilities, learned on valid, without changing the ranking of a question's answers."""

from cascader.tuning.calibration.calibration import (
    CALIBRATION_TRIPLES,
    Calibration,
    Threshold,
    calibrate,
    hash_of_cascade,
    load_calibration,
    save_calibration,
)
from cascader.tuning.calibration.curves import Curve, evidence
from cascader.tuning.calibration.reliability import Bin, Reliability, expected_calibration_error

__all__ = [
    "CALIBRATION_TRIPLES",
    "Bin",
    "Calibration",
    "Curve",
    "Reliability",
    "Threshold",
    "calibrate",
    "evidence",
    "expected_calibration_error",
    "hash_of_cascade",
    "load_calibration",
    "save_calibration",
]
