"""`aliquot agent`."""

import asyncio
from typing import Any

import click

from aliquot.app.agent import serve
from aliquot.app.running import reporting_errors, run_until_stopped
from aliquot.cli.options import CONTEXT
from aliquot.config.agent_tree import AGENT
from aliquot.config.flags import ConfiguredCommand, given, with_keys


@with_keys(AGENT.settings)
@click.command(cls=ConfiguredCommand, context_settings=CONTEXT)
@click.pass_context
def command(ctx: click.Context, /, **_: Any) -> None:
    """Run the agent on a GPU node: publish its cards, offer them to kubelet, and give each container its placed cards.

    Without the NVIDIA driver it waits. It prefers a container runtime with CDI; containerd 2.x enables CDI by default.
    A container without a placement gets no card, and the events of its pod say why. On a node with the label
    aliquot.io/observed=true it offers nothing, and records which cards another device plugin gave.
    """
    with reporting_errors(1):
        keys = given(ctx)
    run_until_stopped(serve(keys), asyncio.run)
