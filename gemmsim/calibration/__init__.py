"""What a GPU was measured to do: latencies, rates and the cost of launches, each number with its source.

`gemmsim calibrate` measures them and writes a file; those of shipped GPUs lie in `data/calibration/`. What a GPU has no
number of its own for is taken, number by number, from the nearest that has one: another GPU of its compute capability,
what was published of that (`data/calibration/architectures.toml`), then of the same generation, then of any, scaled by
multiprocessors and clocks where physics says how. Where nobody measured, the datasheet's peak stands in for a rate.
Nothing here was fitted to the time of a GEMM.
"""

from gemmsim.calibration.lending import as_if_uncalibrated, calibrated, calibration, load_calibration
from gemmsim.calibration.numbers import Calibration

__all__ = ["Calibration", "as_if_uncalibrated", "calibrated", "calibration", "load_calibration"]
