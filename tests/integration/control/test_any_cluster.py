"""Pods in every dialect on nodes that change: briefly here, for long in tests/soak."""

from hypothesis import settings

from tests.integration.control.cluster_machine import ClusterMachine

TestAnyCluster = ClusterMachine.TestCase
TestAnyCluster.settings = settings(max_examples=60, stateful_step_count=25)
