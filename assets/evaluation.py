"""Evaluation assets: ic_by_experiment, ic_matrix, comparison, inference, sensitivity, report, benchmark_release.

No formula lives here.
"""

from typing import Any

import dagster as dg
import pandas as pd

from assets.partitioned import OWNER, Presentation, table_asset
from assets.plots import bars
from assets.publishing import publish_release, publish_report
from finevolve_pipeline.evaluation.layout import table2, table2_markdown
from finevolve_pipeline.evaluation.sensitivity import survivals
from finevolve_pipeline.evaluation.significance import significance_level
from finevolve_pipeline.graph import Graph
from finevolve_pipeline.mechanisms.registry import without_experience
from finevolve_pipeline.partitions import Partitions
from resources.table_store import TableStore

GROUP = "evaluation"


def evaluation_assets(graph: Graph, partitions: Partitions) -> list[dg.AssetsDefinition]:
    """All evaluation assets, upstream first."""
    tables = graph.tables
    headline, level = graph.settings.evaluation.headline, significance_level(graph.settings.evaluation.confidence)

    def describe_ic(frame: pd.DataFrame) -> dict[str, Any]:
        overall = frame[(frame["stage"] == "overall") & (frame["method"] == headline)]
        return {
            f"{row['metric']}_{row['horizon']}d_{row['cells']}": float(row["value"])
            for _, row in overall.iterrows()
            if len(overall) <= 12 and pd.notna(row["value"])
        }

    def describe_matrix(frame: pd.DataFrame) -> dict[str, Any]:
        chosen = frame[(frame["stage"] == "overall") & (frame["method"] == headline) & (frame["cells"] == "common")]
        places = chosen["metric"] + " " + chosen["horizon"].astype(str) + "d"
        values = chosen.assign(place=places).pivot_table("value", "place", "experiment", sort=False)
        return {"coefficients": bars(values, f"{headline} IC, overall"), "undefined": int(frame["undefined"].sum())}

    def describe_comparison(frame: pd.DataFrame) -> dict[str, Any]:
        alone = without_experience(graph.settings)
        table = table2(frame, stages=("overall",), methods=(headline,), without_experience=alone)
        return {"table": dg.MetadataValue.md(table2_markdown(table))}

    def describe_inference(frame: pd.DataFrame) -> dict[str, Any]:
        chosen = frame[(frame["stage"] == "overall") & (frame["method"] == headline)]
        differences = chosen[chosen["quantity"] == "difference"]
        tested = differences[differences["p"].notna()]
        return {
            "differences_tested": len(tested),
            "level": level,
            "differences_below_level": int((tested["p"] < level).sum()),
            "differences_below_level_holm": int((tested["p_holm"] < level).sum()),
        }

    def describe_sensitivity(frame: pd.DataFrame) -> dict[str, Any]:
        fates = survivals(frame)
        return {
            "changes": {f"{fate.backbone} {fate.variant} {fate.stage}": fate.outcome for fate in fates},
            "differences_that_change": sum(len(fate.moved) for fate in fates),
        }

    @dg.asset(
        deps=[
            "comparison",
            "inference",
            "sensitivity",
            "ic_matrix",
            "replay",
            "alpha",
            "label_bases",
            "tagged_articles",
            "benchmark_news",
            "news_window",
        ],
        description="Static HTML report, one folder that opens without a network: tables, figures, manifest.",
        group_name=GROUP,
        kinds={"html"},
        owners=[OWNER],
    )
    def report(context: dg.AssetExecutionContext, store: dg.ResourceParam[TableStore]) -> dg.MaterializeResult[None]:
        published = publish_report(graph, store)
        return dg.MaterializeResult(
            metadata={"report": dg.MetadataValue.path(published.path), "files": published.files},
            data_version=dg.DataVersion(published.digest),
        )

    @dg.asset(
        deps=["benchmark_news", "industry_bars"],
        description="The dataset as daily YYYYMMDD.csv (date, sector, newsList, open, close, volume, ...) and parquet, "
        "with checksums and a datasheet.",
        group_name=GROUP,
        kinds={"csv", "parquet"},
        owners=[OWNER],
    )
    def benchmark_release(
        context: dg.AssetExecutionContext, store: dg.ResourceParam[TableStore]
    ) -> dg.MaterializeResult[None]:
        published = publish_release(graph, store)
        return dg.MaterializeResult(
            metadata={"release": dg.MetadataValue.path(published.path), "files": published.files},
            data_version=dg.DataVersion(published.digest),
        )

    return [
        table_asset(
            tables["ic_by_experiment"],
            Presentation(
                GROUP,
                "tsIC and csIC of one experiment on its own valid cells, by horizon, stage and method.",
                describe=describe_ic,
            ),
            partitions.experiments,
            [dg.AssetDep("replay", partition_mapping=partitions.to_experiment()), "alpha"],
        ),
        table_asset(
            tables["ic_matrix"],
            Presentation(
                GROUP,
                "All experiments side by side, on own cells and on the cells valid in every run of a backbone.",
                describe=describe_matrix,
            ),
            None,
            ["ic_by_experiment", "replay", "alpha"],
        ),
        table_asset(
            tables["comparison"],
            Presentation(
                GROUP,
                "Gain of every mechanism over Pipe, as in the paper's Table 2.",
                describe=describe_comparison,
            ),
            None,
            ["ic_matrix"],
        ),
        table_asset(
            tables["inference"],
            Presentation(
                GROUP,
                "Standard error, interval, p-values and detectable size of every coefficient and difference from Pipe.",
                describe=describe_inference,
            ),
            None,
            ["ic_by_experiment", "replay", "alpha"],
        ),
        table_asset(
            tables["sensitivity"],
            Presentation(
                GROUP,
                "Does the conclusion survive? The same predictions, evaluated with one thing changed at a time.",
                describe=describe_sensitivity,
            ),
            None,
            ["ic_by_experiment", "replay", "label_bases"],
        ),
        report,
        benchmark_release,
    ]
