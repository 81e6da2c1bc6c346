"""The report: one static folder that opens without a network.

What lives here: layout, words and figures. What must not: computing coefficients (see `evaluation.ic`).
"""

from finevolve_pipeline.evaluation.report.build import ReportFiles, ReportInputs, build_report
from finevolve_pipeline.evaluation.report.inputs import PlantedTruth

__all__ = ["PlantedTruth", "ReportFiles", "ReportInputs", "build_report"]
