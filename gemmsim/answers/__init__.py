"""Results as the JSON documents of the command line: plain data, SI units, the names that scripts rely on."""

from gemmsim.answers.devices import device, devices
from gemmsim.answers.document import Document, launch, plain, to_json
from gemmsim.answers.launches import (
    access,
    explanation,
    ladder,
    occupancy_details,
    prediction,
    registers,
    timeline,
    traffic,
)
from gemmsim.answers.measurements import comparison, records

__all__ = [
    "Document", "access", "comparison", "device", "devices", "explanation", "ladder", "launch", "occupancy_details",
    "plain", "prediction", "records", "registers", "timeline", "to_json", "traffic",
]  # fmt: skip
