"""Core API: counts, in the form of 0.38 (the script says how long) or, with an argument, of 0.37 (the search says it)."""

import sys

import determined as det


def main(core_context, latest, asks):
    count = 0
    if latest is not None:
        with core_context.checkpoint.restore_path(latest) as path:
            count = int((path / "count").read_text())
        assert core_context.checkpoint.get_metadata(latest)["steps_completed"] == count
    operations = core_context.searcher.operations() if asks else [None]
    for operation in operations:
        end = operation.length if asks else 6
        while count < end:
            count += 1
            core_context.train.report_training_metrics(steps_completed=count, metrics={"count": count, "word": "no number"})
            if count % 2 == 0:
                core_context.train.report_validation_metrics(steps_completed=count, metrics={"loss": -count})
                with core_context.checkpoint.store_path({"steps_completed": count}) as (path, storage_id):
                    (path / "count").write_text(str(count))
                assert storage_id
            if core_context.preempt.should_preempt():
                return
        if asks:
            operation.report_completed(-count)


if __name__ == "__main__":
    info = det.get_cluster_info()
    with det.core.init() as core_context:
        main(core_context, info.latest_checkpoint, len(sys.argv) > 1)
