"""Renders the golden conversations with our own chat template, as transformers would.

    python render_chat.py        (needs jinja2)

The template and the goldens are those that the Rust tests use. The first difference ends the run
with a diff.
"""

import difflib
import json
import pathlib
import sys

import jinja2

DATA = pathlib.Path(__file__).resolve().parents[2] / "crates/slotstream/tests/data"
sys.dont_write_bytecode = True
sys.path.insert(0, str(DATA / "template"))
from goldens import ENV  # noqa: E402  (the environment of transformers)

# Not variables of a template.
ANSWERS = ("name", "rendered", "ids", "error")


def answer(template, case):
    """The kind of answer, `rendered` or `error`, and its text."""
    variables = {"tools": None, "documents": None, "add_generation_prompt": True}
    variables |= {name: value for name, value in case.items() if name not in ANSWERS}
    try:
        return "rendered", template.render(**variables)
    except jinja2.exceptions.TemplateError as error:
        return "error", str(error)


def check(template, cases, kind):
    """Ends the run at the first case whose answer differs."""
    for case in cases:
        found_kind, found = answer(template, case)
        if (found_kind, found) == (kind, case[kind]):
            continue
        lines = difflib.unified_diff(
            [repr(line) for line in case[kind].splitlines(True)],
            [repr(line) for line in found.splitlines(True)],
            f"golden {kind}",
            f"found {found_kind}",
            lineterm="",
        )
        print(f"{case['name']} differs:", *lines, sep="\n", file=sys.stderr)
        sys.exit(1)


def main():
    template = ENV.from_string((DATA / "qwen/qwen3.8.jinja").read_text(encoding="utf-8"))
    golden = json.loads((DATA / "qwen/chat_golden.json").read_text(encoding="utf-8"))
    cases, errors = golden["cases"], golden["errors"]
    if (len(cases), len(errors)) != (15, 5):
        sys.exit(f"{len(cases)} conversations and {len(errors)} errors instead of 15 and 5")
    check(template, cases, "rendered")
    check(template, errors, "error")
    print(f"Jinja2 {jinja2.__version__}: {len(cases)} conversations and {len(errors)} errors equal")


main()
