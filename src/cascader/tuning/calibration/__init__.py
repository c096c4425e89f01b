"""From scores to probabilities, learnt on valid; the ranking of a question's answers stays as it is."""

from cascader.tuning.calibration.calibration import Calibration, Threshold
from cascader.tuning.calibration.calibrator import calibrate
from cascader.tuning.calibration.curves import Curve
from cascader.tuning.calibration.evidence import evidence
from cascader.tuning.calibration.persistence import hash_of_cascade, load_calibration, save_calibration
from cascader.tuning.calibration.reliability import Bin, Reliability, expected_calibration_error

__all__ = [
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
