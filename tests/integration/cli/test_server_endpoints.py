"""A server with every endpoint open."""

from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.factories import node_manifest, pod_manifest
from tests.fakes import ScriptedApi
from tests.integration.cli.servers import a_server, add_namespace, check, is_ready

ENDPOINTS = ("ADMISSION", "GPUSHARE", "ELASTIC", "NVIDIA", "NATIVE")
OPEN = {f"ALIQUOT_{endpoint}_ENABLED": "true" for endpoint in ENDPOINTS} | {
    f"ALIQUOT_{endpoint}_PORT": "0" for endpoint in ENDPOINTS
}
NO_DEBUG = {"ALIQUOT_ADMISSION_DEBUG_PORT": "0"}
FILTERS = {
    "admission": "/scheduler/predicates",
    "gpushare": "/gpushare-scheduler/filter",
    "elastic": "/scheduler/filter",
    "nvidia": "/apis/metrics.nvidia.com/v1alpha1/schedule/filter",
    "native": "/aliquot/filter",
}


async def test_every_endpoint_answers_on_its_own_port_and_only_the_named_one_as_its_original(
    tmp_path: Path, scripted: ScriptedApi
) -> None:
    add_namespace(scripted)
    environment = OPEN | NO_DEBUG | {"ALIQUOT_COMPAT": "gpushare=maps,reasons"}
    async with a_server(scripted, tmp_path, **environment) as server:
        await is_ready(server)
        answers: dict[str, Any] = {}
        for endpoint, path in FILTERS.items():
            port = server.process.number(f'"{endpoint}", "address": "127.0.0.1", "port": ')
            call = {"Pod": pod_manifest(gpu_mem=3), "Nodes": {"items": [node_manifest("ghost")]}}
            async with (
                aiohttp.ClientSession() as session,
                session.post(f"http://127.0.0.1:{port}{path}", json=call) as response,
            ):
                answers[endpoint] = await response.json(content_type=None)
    reasons = {endpoint: answer["FailedNodes"]["ghost"] for endpoint, answer in answers.items()}
    assert reasons == dict.fromkeys(FILTERS, "node not found") | {"gpushare": 'node "ghost" not found'}
    assert [endpoint for endpoint, answer in answers.items() if answer["FailedAndUnresolvableNodes"] is None] == [
        "gpushare"
    ]


@pytest.mark.parametrize(
    ("compat", "text"),
    [
        pytest.param("gpushare=map", "compat.gpushare: unknown quirk 'map'; valid quirks are maps, ", id="a quirk"),
        pytest.param("gpu=maps", "compat: unknown endpoint gpu; valid endpoints are admission, ", id="an endpoint"),
    ],
)
async def test_a_quirk_or_a_endpoint_that_there_is_not_is_named(compat: str, text: str) -> None:
    ended = await check("--compat", compat)
    assert ended.code == 1
    assert text in ended.err
