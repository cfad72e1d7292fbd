"""The protocol that agents keep, as small shell commands whose last line tells a script what happened.

That line is ``== WORD rest``. Plain git throughout: what holds for these commands holds for any agent.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from team.names import lock_path, task_path

_MARK = re.compile(r"^== ([A-Z_]+)(?: (.*))?$", re.M)

# Tickets that nobody holds.
_OPEN = """\
open=
for ticket in tasks/*.md; do
  task=${ticket#tasks/}; task=${task%.md}
  [ -e "$ticket" ] && [ "$task" != README ] && [ ! -e "current_tasks/$task.txt" ] && open="$open $task"
done
"""
# A push that is refused says why on its `remote:` and `!` lines; the rest is noise.
_PUSH = """\
push() { said=$(git push 2>&1); code=$?; printf '%s\\n' "$said" | tail -n 8; return $code; }
"""


@dataclass(frozen=True)
class Mark:
    """What the last command ended with."""

    word: str
    rest: tuple[str, ...] = ()


def mark(result: str) -> Mark | None:
    """The last mark in the output of a command, or None where it has none (killed, or no command of ours)."""
    found = _MARK.findall(result)
    return Mark(found[-1][0], tuple(found[-1][1].split())) if found else None


def number(agent: str) -> int:
    """The seat's number: 3 for ``agent-03``; 1 where there is none."""
    digits = re.search(r"(\d+)\Z", agent)
    return int(digits[1]) if digits else 1


def look() -> str:
    """Orient: ``OPEN`` with the tickets that nobody holds."""
    return f'# Look around\ngit log --oneline -n 3\nls current_tasks\n{_OPEN}echo "== OPEN$open"'


def claim(task: str, text: str, ticket: bool = True) -> str:
    """``CLAIMED task``; ``GONE task`` when its ``ticket`` went meanwhile; ``REFUSED task`` and what is open now."""
    lock = lock_path(task)
    gone = f"if [ ! -e {task_path(task)} ]; then echo '== GONE {task}'; exit 0; fi\n" if ticket else ""
    return f"""\
# Claim {task}
{_PUSH}mkdir -p current_tasks
printf '%s\\n' {shlex.quote(text)} > {lock}
git add -f {lock}
if git commit -qm 'Claim {task}' && push; then
git pull -q --no-rebase --no-edit 2>&1
{gone}echo '== CLAIMED {task}'
else
git fetch -q origin && git reset -q --hard origin/main
{_OPEN}echo "== REFUSED {task}$open"
fi"""


@dataclass(frozen=True)
class Edit:
    """One edit of a file: ``old`` becomes ``new``; the whole file is ``new`` where ``old`` is empty."""

    path: str
    old: str
    new: str


def edit(edits: tuple[Edit, ...]) -> str:
    """Make ``edits``; fails, changing nothing more, where a text is not there."""
    lines = ["# Edit " + ", ".join(e.path for e in edits)]
    lines += ["python3 - <<'EDITS' || exit 1", "from pathlib import Path", "def edit(path, old, new):"]
    lines += ["    text = Path(path).read_text() if old else ''"]
    lines += ["    assert old in text, f'{path} has no {old!r}'"]
    lines += ["    Path(path).write_text(text.replace(old, new, 1) if old else new)"]
    lines += [f"edit({e.path!r}, {e.old!r}, {e.new!r})" for e in edits]
    return "\n".join([*lines, "EDITS"])


def test(task: str, command: str) -> str:
    """Run the test: ``PASSED task`` or ``FAILED task code``."""
    return f"""\
# Test {task}
said=$(sh -c {shlex.quote(command)} 2>&1 </dev/null); code=$?
printf '%s\\n' "$said" | tail -n 5
if [ $code = 0 ]; then echo '== PASSED {task}'; else echo "== FAILED {task} $code"; fi"""


def land(task: str, message: str, add: str = "-A .", release: bool = True) -> str:
    """Commit what was done (``add``: what ``git add`` gets) without the ticket and, with ``release``, the lock:
    ``LANDED task`` or ``NOT_LANDED task``."""
    away = f"{task_path(task)} {lock_path(task)}" if release else task_path(task)
    return f"""\
# Land {task}
{_PUSH}git rm -q --ignore-unmatch {away}
git add {add}
git commit -qm {shlex.quote(message)}
if push; then echo '== LANDED {task}'; else echo '== NOT_LANDED {task}'; fi"""


def pull(task: str, command: str) -> str:
    """After a refused push: merge main, test, push again: ``LANDED``, ``NOT_LANDED`` or ``FAILED``; or ``CONFLICT``
    with the marked lines shown. Three tries, for an upstream that does not merge by itself."""
    return f"""\
# Merge main into {task}
{_PUSH}for try in 1 2 3; do
git pull --no-rebase --no-edit 2>&1 | tail -n 3
if [ -e .git/MERGE_HEAD ]; then git diff --diff-filter=U | head -n 60; echo '== CONFLICT {task}'; exit 0; fi
{_tested(task, command)}if push; then echo '== LANDED {task}'; exit 0; fi
done
echo '== NOT_LANDED {task}'"""


def resolve(task: str, message: str, command: str) -> str:
    """Finish the merge with the lines of both sides, right where both only added some; test, and push:
    ``LANDED``, ``NOT_LANDED`` or ``FAILED``."""
    return f"""\
# Resolve the conflict of {task}
{_PUSH}git diff --name-only --diff-filter=U -z | xargs -0 sed -i '/^<<<<<<< /d;/^=======$/d;/^>>>>>>> /d'
{_tested(task, command)}git add -u
git commit -qm {shlex.quote(message)}
if push; then echo '== LANDED {task}'; else echo '== NOT_LANDED {task}'; fi"""


def _tested(task: str, command: str) -> str:
    return f"""\
sh -c {shlex.quote(command)} >.git/said 2>&1 </dev/null || {{ tail -n 5 .git/said; echo '== FAILED {task}'; exit 0; }}
"""


def release(task: str) -> str:
    """Remove the lock in a push of its own: ``RELEASED task`` or ``NOT_RELEASED task``."""
    lock = lock_path(task)
    return f"""\
# Release {task}
{_PUSH}git pull -q --no-rebase --no-edit 2>&1
if [ -e {lock} ]; then git rm -q {lock} && git commit -qm 'Release {task}'; fi
if push; then echo '== RELEASED {task}'; else echo '== NOT_RELEASED {task}'; fi"""
