"""Classes of jobs as the command line names them."""

from collections.abc import Callable
from fnmatch import fnmatchcase

from aliquot.errors import BadInput
from aliquot.model import is_model
from aliquot.simulate.demand import Demands
from aliquot.simulate.scenario import SimulatedPod

Selection = Callable[[SimulatedPod], bool]

_EXAMPLE = "class=training, cards=8, cards=2-8, share=1-99, model=A100 or name=team-a/*"


def parsed_selection(text: str, demands: Demands) -> Selection:
    """Conditions such as `cards=2-8`, joined by `,`: all must hold. Raises BadInput."""
    conditions = [_condition(part.strip(), demands) for part in text.split(",")]
    return lambda pod: all(condition(pod) for condition in conditions)


def _condition(text: str, demands: Demands) -> Selection:
    key, sign, value = text.partition("=")
    if not sign or not value:
        raise BadInput(f"{text!r} is not a class of jobs; write {_EXAMPLE}")
    match key:
        case "class":
            return lambda pod: pod.kind == value
        case "name":
            return lambda pod: fnmatchcase(pod.name, value)
        case "model":
            return lambda pod: any(
                is_model(value, name) or is_model(name, value)
                for constraint in pod.request.constraints.models
                for name in constraint.names
            )
        case "cards":
            least, most = _range(text, value)
            return lambda pod: least <= pod.cards <= most
        case "share":
            least, most = _range(text, value)
            return lambda pod: bool(pod.cards) and least <= demands.of(pod) / pod.cards / 10 <= most
    raise BadInput(f"{key!r} is not known of a job; write {_EXAMPLE}")


def _range(text: str, value: str) -> tuple[int, int]:
    least, dash, most = value.partition("-")
    if not least.isdecimal() or (dash and not most.isdecimal()):
        raise BadInput(f"{text!r}: {value!r} is neither a number nor a range such as 2-8")
    return int(least), int(most if dash else least)
