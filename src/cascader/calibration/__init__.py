"""From scores to probabilities, learnt on valid; the ranking of a question's answers stays as it is."""

from cascader.calibration.calibration import Calibration, Threshold
from cascader.calibration.curves import Curve
from cascader.calibration.evidence import evidence
from cascader.calibration.fitting import calibrate
from cascader.calibration.keeping import hash_of_cascade, load_calibration, save_calibration
from cascader.calibration.reliability import Bin, Reliability, expected_calibration_error

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
