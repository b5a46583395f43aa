"""Indexed Jobs: each pod has a number, and each number must succeed once."""

from collections.abc import Iterator

from aliquot.embedded.api.objects import Object, text_at, with_metadata

INDEX = "batch.kubernetes.io/job-completion-index"

_VARIABLE = {
    "name": "JOB_COMPLETION_INDEX",
    "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{INDEX}']"}},
}


def index_of(pod: Object) -> int | None:
    text = text_at(pod, "metadata", "annotations", INDEX)
    return int(text) if text.isdigit() else None


def completed(job: Object) -> set[int]:
    """The numbers that have succeeded: `0-2,5` is four of them."""
    found: set[int] = set()
    for part in text_at(job, "status", "completedIndexes").split(","):
        first, _, last = part.partition("-")
        if first.isdigit():
            found.update(range(int(first), int(last or first) + 1))
    return found


def with_completed(job: Object, done: set[int]) -> Object:
    if not _is_indexed(job):
        return job
    return {**job, "status": {**job["status"], "succeeded": len(done), "completedIndexes": _ranges(sorted(done))}}


def _ranges(numbers: list[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def free_indexes(job: Object, active: list[Object]) -> Iterator[int]:
    """The numbers that still need a pod, lowest first; none where the Job does not count them."""
    if not _is_indexed(job):
        return
    taken = completed(job) | {index_of(pod) for pod in active}
    yield from (number for number in range(job["spec"]["completions"]) if number not in taken)


def numbered(pod: Object, job: Object, index: int) -> Object:
    mark = {INDEX: str(index)}
    metadata, spec = pod["metadata"], pod["spec"]
    name = f"{job['metadata']['name']}-{index}"
    fields = [field for field in ("initContainers", "containers") if field in spec]
    listed = {field: [_told(container) for container in spec[field]] for field in fields}
    marked = with_metadata(
        pod,
        generateName=f"{name}-",
        labels={**(metadata.get("labels") or {}), **mark},
        annotations={**(metadata.get("annotations") or {}), **mark},
    )
    return {**marked, "spec": {"hostname": name, **spec, **listed}}


def _told(container: Object) -> Object:
    return {**container, "env": [*container.get("env", []), _VARIABLE]}


def _is_indexed(job: Object) -> bool:
    return text_at(job, "spec", "completionMode") == "Indexed"
