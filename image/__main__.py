"""`python -m image`: writes the archive and says what is in it."""

import sys
import time
from pathlib import Path

import click

import aliquot
from image import archive, building, wheels
from image.base import PACKAGES
from image.debian import Debian
from image.errors import ImageError
from image.sources import Sources, configured

_PROJECT = Path(__file__).parents[1]


@click.command()
@click.option(
    "--output", type=click.Path(path_type=Path), help="Where to write the archive [dist/aliquot-VERSION-image.tar]."
)
@click.option("--registry", default="", help="Put before every name, such as registry.example.com/team/.")
@click.option("--release", default="trixie", show_default=True, help="Debian's release.")
@click.option("--mirror", default="", help="Where apt gets Debian's packages [where this machine's own apt does].")
def main(output: Path | None, registry: str, release: str, mirror: str) -> None:
    """Make the images of all programs, in one archive."""
    try:
        _make(output or _PROJECT / "dist" / f"aliquot-{aliquot.__version__}-image.tar", registry, release, mirror)
    except ImageError as error:
        click.echo(f"no image: {error}", err=True)
        sys.exit(1)


def _make(output: Path, registry: str, release: str, mirror: str) -> None:
    started = time.monotonic()

    def progress(text: str) -> None:
        click.echo(f"[{time.monotonic() - started:5.1f} s] {text}", err=True)

    cache = building.cache_folder()
    found = Sources.at(mirror) if mirror else configured()
    debian = Debian(
        cache / "debian", release=release, architecture=building.architecture(), sources=found, progress=progress
    )
    packages = debian.get(PACKAGES)
    progress("building Aliquot's wheel")
    own = wheels.build(_PROJECT, cache / "own")
    images = building.images(
        packages,
        lambda python: wheels.download(
            wheels.pinned(_PROJECT / "requirements" / "run.txt", python), python, cache / f"wheels-{python}"
        ),
        own,
        registry=f"{registry.rstrip('/')}/" if registry else "",
        moment=building.created(_PROJECT),
        progress=progress,
    )
    output.parent.mkdir(parents=True, exist_ok=True)
    archive.write(images, output)
    progress(f"{output}: {output.stat().st_size / 1e6:.0f} MB")
    for image in images:
        click.echo(f"{image.name}  {image.digest}")


if __name__ == "__main__":
    main()
