"""An option that would have no effect is an error: whoever writes it expects one."""

from aliquot.app.simulate.options import LISTED, TIMES, RunOptions, SourceOptions
from aliquot.errors import BadInput
from aliquot.simulate.yaml_lists import is_yaml


def check_options(source: SourceOptions, how: RunOptions) -> None:
    """Raises BadInput."""
    own_times, own_order = source.departures == TIMES, bool(source.arrivals)
    in_kubernetes = source.from_cluster or (source.pods is not None and is_yaml(source.pods))
    has_seeds = source.named_order != LISTED and not own_times and not own_order
    rules = (
        (source.pod_list, source.openb, "--list names a list of --openb"),
        (source.kubeconfig, source.from_cluster, "--kubeconfig is only for --from-cluster"),
        (source.context, source.from_cluster, "--context is only for --from-cluster"),
        (source.keep_bound, in_kubernetes, "--keep-bound is only for --from-cluster and for --pods in YAML"),
        (own_order, not own_times, "--departures times has an order of its own: leave out --arrivals"),
        (source.order, not own_order, "--arrivals names an order of its own: leave out --order"),
        (
            source.order,
            not own_times or source.order == LISTED,
            f"--departures times has an order of its own: leave out --order {source.order}",
        ),
        (
            source.seeds,
            has_seeds,
            "--seeds has no effect on this order of arrival: add --order shuffled, or leave out --seeds",
        ),
        (how.policy, how.compare is None, "--compare names every policy: leave out --policy"),
        (how.returnable, not (how.add_nodes or how.grow), _AS_IT_IS),
    )
    for given, has_effect, text in rules:
        if given and not has_effect:
            raise BadInput(text)


_AS_IT_IS = "--returnable asks about the cluster as it is: leave out --add-node and --grow"
