"""The command line. Nothing heavy is imported until a command needs it, so that --help answers at once."""

from __future__ import annotations

import sys

import typer

from fedakd import __version__
from fedakd.cli.artefacts import register
from fedakd.cli.catalogue import datasets, methods, partitions
from fedakd.cli.compare import compare, merge
from fedakd.cli.data import app as data_app
from fedakd.cli.paper import app as paper_app
from fedakd.cli.report import report
from fedakd.cli.run import demo, run
from fedakd.cli.shift import shift
from fedakd.cli.theory import app as theory_app
from fedakd.errors import FedakdError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Compare federated methods fairly: does joining pay, for whom, and is it fair?\n\n"
    "Start with: fedakd demo",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(demo)
app.command()(run)
app.command()(compare)
app.command()(merge)
app.command()(report)
app.command()(shift)
app.command()(methods)
app.command()(partitions)
app.command()(datasets)
app.add_typer(data_app, name="data")
register(paper_app)
app.add_typer(paper_app, name="paper")
app.add_typer(theory_app, name="theory")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fedakd {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version."
    ),
) -> None:
    pass


def main() -> None:
    try:
        app()
    except (FedakdError, OSError) as error:  # a full disk, a folder that is a file: no traceback helps
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)
