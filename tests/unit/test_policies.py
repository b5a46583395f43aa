"""The admission policies as they are written: from the dialects' declarations, and as the shipped file has them."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner

from aliquot.cli import main
from aliquot.control.admission import manifests
from aliquot.dialects import Dialect, Dialects, make_dialects, placed_on, standard_dialects
from aliquot.dialects.table import OURS
from aliquot.embedded.api.policies import is_like
from aliquot.model import Pod
from aliquot.model.admission import AGENT_REACH, FENCING, FORGERY, OUR_KEYS, PARAMETERS, SERVER_KEYS, SERVER_REACH
from aliquot.model.records import OBSERVED
from tests.factories import T4, make_cards

ROOT = Path(__file__).parents[2]


def printed(*arguments: str) -> str:
    done = CliRunner().invoke(main, ["policies", *arguments])
    assert done.exit_code == 0, done.output
    return done.output


def objects(text: str) -> dict[tuple[str, str], dict[str, Any]]:
    kinds = {"ValidatingAdmissionPolicy": "policy", "ValidatingAdmissionPolicyBinding": "binding"}
    return {(kinds[held["kind"]], held["metadata"]["name"]): held["spec"] for held in yaml.safe_load_all(text)}


def tables(dialects: Dialects, policy: str = FORGERY) -> dict[str, Any]:
    names = ("lists", "ours", "placement", "sizes", "resources", "keys")
    specs = (held["spec"] for held in manifests(dialects) if held["metadata"]["name"] == policy)
    variables = (variable for spec in specs for variable in spec.get("variables", ()))
    return {held["name"]: json.loads(held["expression"]) for held in variables if held["name"] in names}


def test_each_policy_is_bound() -> None:
    found = objects(printed())
    names = {FENCING, FORGERY, PARAMETERS, AGENT_REACH, SERVER_REACH}
    assert set(found) == {(kind, name) for kind in ("policy", "binding") for name in names}
    assert all(spec["policyName"] == name for (kind, name), spec in found.items() if kind == "binding")
    assert all(spec["failurePolicy"] == "Fail" for (kind, _), spec in found.items() if kind == "policy")


@pytest.mark.parametrize(
    ("arguments", "forgery"),
    [((), ["Warn", "Audit"]), (("--enforce", "Deny"), ["Deny"]), (("--enforce", "Warn,Audit"), ["Warn", "Audit"])],
)
def test_forgery_is_refused_when_asked_for_and_a_stale_leader_always(
    arguments: tuple[str, ...], forgery: list[str]
) -> None:
    found = objects(printed(*arguments))
    assert found["binding", FORGERY]["validationActions"] == forgery
    always = (FENCING, PARAMETERS, AGENT_REACH, SERVER_REACH)
    assert all(found["binding", name]["validationActions"] == ["Deny"] for name in always)


def test_parameters_are_looked_for_in_the_namespace() -> None:
    found = objects(printed("--namespace", "gpu"))
    places = [spec["paramRef"]["namespace"] for (kind, _), spec in found.items() if "paramRef" in spec]
    assert places == ["gpu", "gpu"]
    (read,) = found["policy", PARAMETERS]["variables"]
    assert json.loads(read["expression"]) == ["gpu/aliquot-epoch", "gpu/aliquot-writers"]


def test_a_bad_prefix_is_told() -> None:
    done = CliRunner().invoke(main, ["policies", "--prefix", "nobody=x.example"])
    assert done.exit_code == 1
    assert "unknown dialect nobody" in done.output


def test_another_prefix_guards_other_keys() -> None:
    made = tables(make_dialects({"tencent": "gpu.example", "aliquot": "own.example"}))
    assert made["placement"]["gpu.example/predicate-node"] == ["tencent"]
    assert made["resources"]["gpu.example/vcuda-core"] == ["tencent"]
    assert made["sizes"]["cores.own.example/*"] == ["aliquot"]
    assert made["ours"] == list(OUR_KEYS)


@pytest.mark.parametrize("dialect", [standard_dialects()[kind.name] for kind in OURS], ids=lambda held: held.name)
def test_every_declaration_is_in_the_tables(dialect: Dialect) -> None:
    made = tables(standard_dialects())
    assert dialect.name in made["lists"]
    assert all(dialect.name in made["placement"][key] for key in dialect.placement_keys)
    assert all(dialect.name in made["sizes"][key] for key in dialect.size_keys)
    assert all(dialect.name in made["resources"][name] for name in dialect.guarded_resources)


@pytest.mark.parametrize("dialect", [standard_dialects()[kind.name] for kind in OURS], ids=lambda held: held.name)
def test_our_accounts_may_write_what_a_dialect_has_them_write(dialect: Dialect) -> None:
    agent, server = (tables(standard_dialects(), policy) for policy in (AGENT_REACH, SERVER_REACH))
    pod = msgspec.convert({**dialect.sample_pod(), "spec": dialect.sample_pod()["spec"] | {"nodeName": "n1"}}, Pod)
    assert set(dialect.hand_over_marks(pod, 0)) <= set(agent["keys"]["pods"])
    assert {*SERVER_KEYS, *dialect.placement_keys} <= set(server["keys"])
    assert OBSERVED in agent["keys"]["pods"]
    assert OBSERVED not in server["keys"]
    assert set(dialect.guarded_resources) <= set(server["resources"])


@pytest.mark.parametrize("dialect", [standard_dialects()[kind.name] for kind in OURS], ids=lambda held: held.name)
def test_what_a_dialect_writes_at_bind_is_among_the_keys_that_it_declares(dialect: Dialect) -> None:
    pod = msgspec.convert(dialect.sample_pod(), Pod)
    request, cards = dialect.demand(pod), make_cards(mib=(T4,) * 4)
    gpus = {asked.name: cards.gpus[: asked.part.cards] for asked in request.containers}
    placement = placed_on(request, gpus, cards)
    annotations = dialect.annotations(pod, request, placement, cards, 0)
    written = {**annotations, **dialect.labels(pod, request, placement, cards)}
    assert all(any(is_like(pattern, key) for pattern in dialect.placement_keys) for key in written)
    assert all(key in dialect.placement_keys for key in dialect.mark_keys)


def test_the_policies_are_for_the_accounts_of_the_namespace() -> None:
    found = objects(printed("--namespace", "gpu"))
    for policy, account in ((AGENT_REACH, "aliquot-agent"), (SERVER_REACH, "aliquot-server")):
        (condition,) = found["policy", policy]["matchConditions"]
        assert condition["expression"] == f'request.userInfo.username == "system:serviceaccount:gpu:{account}"'


def test_where_users_say_sizes_in_annotations_or_labels_they_are_guarded() -> None:
    saying = {name for name, dialect in standard_dialects().items() if dialect.size_keys}
    assert saying == {"aliquot", "gpushare", "keti"}
