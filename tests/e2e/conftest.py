"""One rig for all end-to-end tests of a run."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e import image, pods
from tests.real.scheduler import Scheduling
from tests.rig import Rig, missing
from tests.rig.aliquot import Aliquot
from tests.rig.cuda import Driver


@pytest.fixture(scope="session", autouse=True)
def prerequisites() -> None:
    """Skip on a person's machine that lacks something; in CI a skip would hide it, so fail."""
    lacking = missing()
    if lacking:
        message = "the rig cannot start here: " + "; ".join(lacking)
        if os.environ.get("CI"):
            pytest.fail(message, pytrace=False)
        pytest.skip(message)


@pytest.fixture(scope="session")
def progress(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Say something now: compiling Kubernetes for the first time takes minutes."""
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def say(text: str) -> None:
        with capture.global_and_fixture_disabled():
            print(f"\n[rig] {text}", end="", flush=True)

    return say


KEEPER = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: keeper}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints:
    resourceRules: [{apiGroups: [keeper.test], apiVersions: [v1], operations: [CREATE], resources: [nothing]}]
  validations: [{expression: "true"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: keeper}
spec:
  policyName: keeper
  validationActions: [Deny]
  paramRef: {name: nothing, namespace: default, parameterNotFoundAction: Allow}
"""
"""When the last binding with a ConfigMap as its parameter is deleted, kube-apiserver stops its copy of ConfigMaps, and
a later policy reads that stopped copy for ever (docs/admission.md). This one matches nothing and stays, so that tests
can apply and delete policies as they like."""


@pytest.fixture(scope="session")
def images(progress: Callable[[str], None], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of `make image`."""
    return image.make(tmp_path_factory.mktemp("image"), progress)


@pytest.fixture(scope="session")
def rig(progress: Callable[[str], None]) -> Iterator[Rig]:
    with Rig.up(progress=progress) as running:
        running.apply(KEEPER)
        yield running


@pytest.fixture(scope="session")
def started(rig: Rig) -> Aliquot:
    aliquot = Aliquot(rig)
    aliquot.start()
    return aliquot


@pytest.fixture
def aliquot(rig: Rig, started: Aliquot) -> Iterator[Aliquot]:
    """The server and the agent, on a cluster without pods."""
    pods.delete_all(rig)
    yield started
    pods.delete_all(rig)


@pytest.fixture(scope="module")
def driver(rig: Rig) -> Driver:
    """The made-up driver and CUDA program, on the node of this module's rig."""
    made = Driver(rig)
    made.install()
    return made


@pytest.fixture(scope="session")
def control_plane(progress: Callable[[str], None]) -> Iterator[Scheduling]:
    with Scheduling.up(progress) as running:
        yield running


@pytest.fixture
def scheduling(control_plane: Scheduling) -> Iterator[Scheduling]:
    """A real kube-scheduler and API server without nodes; kube-scheduler is to be started with a configuration."""
    control_plane.clear()
    yield control_plane
    control_plane.clear()
