"""Resources that no node has."""

from aliquot.dialects import standard_dialects
from aliquot.reports.resource_names import unknown_resources
from tests.factories import container_manifest, make_pod


def test_a_pod_with_thousands_of_strange_resources_costs_no_more_than_one_with_a_few() -> None:
    limits = {f"aliyun.com/gpu-men{number}": "1" for number in range(5000)}
    pod = make_pod("p", containers=[container_manifest("main", None, resources={"limits": limits})])

    unknown = unknown_resources(pod, standard_dialects(), ())

    assert unknown == list(limits)[:16]
