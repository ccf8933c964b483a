"""What holds for a report of the ablation, a rehearsal's and a stored one's."""

from __future__ import annotations


def check_origin(report: dict) -> None:
    assert report["command"].startswith("python benchmarks/ablation.py")
    assert report["machine"]["cores"] >= 1
    assert report["date"]


def check_counts(report: dict) -> None:
    """What does not depend on time: the same on every machine."""
    for workload in report["workloads"].values():
        static, paging, iteration, chunking, prefix = workload["ladder"]
        needed = (
            workload["prompt_tokens"] + workload["output_tokens"] - workload["requests"]
        )  # the last one is not computed
        for row in workload["ladder"]:
            assert row["preemptions"] > 0 or row["tokens"] + row["hit_tokens"] == needed
            assert row["cpu_seconds"] in row["all_cpu_seconds"]
            assert len(row["all_cpu_seconds"]) == report["repeats"]
        assert static["padding"] > 0
        assert [row["padding"] for row in (iteration, chunking, prefix)] == [0, 0, 0]
        assert [row["hit_tokens"] for row in (static, paging, iteration, chunking)] == [0, 0, 0, 0]
        assert (prefix["hit_tokens"] > 0) is (workload["trace"] != "synthetic_azure_conv")
        assert static["steps"] >= paging["steps"] >= iteration["steps"] <= chunking["steps"]
