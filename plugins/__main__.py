"""`python -m plugins`: writes the files of all plug-ins into dist/."""

import platform
import sys
from pathlib import Path

import click

from image import building as image_building
from image import wheels
from image.errors import ImageError
from plugins import krew
from plugins.building import PLUGINS, Files, build, of_this_python, of_wheels

_PROJECT = Path(__file__).parents[1]
_VERSIONS = "3.11,3.12,3.13,3.14"
_HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


@click.command()
@click.option("--output", type=click.Path(path_type=Path), default=_PROJECT / "dist", help="Folder for them [dist/].")
@click.option("--pythons", default=_VERSIONS, show_default=True, help="Versions of Python to make them for.")
@click.option("--url", default="https://example.com", show_default=True, help="Where krew will find the archives.")
@click.option("--offline", is_flag=True, help="Only for this Python, with the packages that are installed here.")
def main(output: Path, pythons: str, url: str, offline: bool) -> None:
    """Make each kubectl plug-in as one file."""
    try:
        for plugin in PLUGINS:
            versions = [_HERE] if offline else pythons.split(",")
            packages = {version: _packages(plugin.needs, version, offline) for version in versions}
            path = output / plugin.name
            build(plugin, packages, path)
            krew.write(path, url)
            size = path.stat().st_size / 1e6
            click.echo(f"{path}: {size:.1f} MB, for Python {', '.join(versions)} on {platform.machine()}")
    except ImageError as error:
        click.echo(f"no plug-ins: {error}", err=True)
        sys.exit(1)


def _packages(names: tuple[str, ...], version: str, offline: bool) -> Files:
    if offline:
        return of_this_python(names)
    pins = wheels.pinned(_PROJECT / "requirements" / "run.txt", version)
    wanted = [pin for pin in pins if pin.partition("==")[0] in names]
    return of_wheels(wheels.download(wanted, version, image_building.cache_folder() / f"wheels-{version}"))


if __name__ == "__main__":
    main()
