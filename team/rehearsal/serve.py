"""The scripted model as a program of its own: ``python -m team.rehearsal.model --help``."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import click

from team.errors import TeamError
from team.rehearsal.demo_script import DemoScript
from team.rehearsal.model import FAULTS, Fault, ScriptedModel
from team.rehearsal.own_script import OwnScript
from team.rehearsal.script import Fixed, Script, Step


def load(name: str) -> Script:
    """The script called ``name``: ``demo``, ``own``, or a JSON file with a list of ``{"command"}`` and ``{"text"}``."""
    if name == "demo":
        return DemoScript()
    if name == "own":
        return OwnScript(test="")
    try:
        steps = json.loads(Path(name).read_text("utf-8"))
        return Fixed([Step(s.get("text", ""), (s["command"],) if "command" in s else ()) for s in steps])
    except (OSError, ValueError, AttributeError, TypeError) as e:
        raise TeamError(f"--script {name}: write demo, own, or a JSON file like [{{'command': 'ls'}}] ({e})") from None


@click.command()
@click.option("--script", default="demo", show_default=True, help="demo, own, or a JSON file with steps.")
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", default=8788, show_default=True)
@click.option("--unix", type=click.Path(path_type=Path), help="Serve on this unix socket instead.")
@click.option("--log", type=click.Path(path_type=Path), help="Append what comes in, as JSON lines.")
@click.option("--gather", default=0, help="Let this many agents begin together.")
@click.option("--fault", type=click.Choice(FAULTS), help="What goes wrong.")
@click.option("--first", type=int, help="The fault hits only the first so many calls.")
@click.option("--seconds", type=float, help="The fault lasts so long after the first call.")
@click.option("--retry-after", help="Sent with an error.")
def main(
    script: str,
    host: str,
    port: int,
    unix: Path | None,
    log: Path | None,
    gather: int,
    fault: str | None,
    first: int | None,
    seconds: float | None,
    retry_after: str | None,
) -> None:
    """A model server that follows a script and costs nothing."""
    headers = {"retry-after": retry_after} if retry_after else None
    wrong = Fault(fault, first, seconds, headers) if fault else None
    try:
        model = ScriptedModel(load(script), fault=wrong, gather=gather, log=log)
    except TeamError as e:
        raise click.UsageError(str(e)) from None
    try:
        asyncio.run(_serve(model, host, port, unix))
    except KeyboardInterrupt:
        click.echo(json.dumps(model.report()))


async def _serve(model: ScriptedModel, host: str, port: int, unix: Path | None) -> None:
    async with model.running(host, port, unix) as url:
        click.echo(f"scripted model at {unix or url}")
        await asyncio.Event().wait()
