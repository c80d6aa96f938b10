#!/usr/bin/env python3
"""Runs all checks of the dashboard. See tests/dashboard.sh.

usage: check.py FAKE_AGENT WORK_FOLDER [--screenshots FOLDER]
"""

import argparse
import pathlib
import sys
import traceback

import behaviour
import figures
import looks
from browser import Agent, Page

CHECKS = [*figures.CHECKS, *behaviour.CHECKS, *looks.CHECKS]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("agent")
    parser.add_argument("work")
    parser.add_argument("--screenshots", type=pathlib.Path)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    failed = 0
    with Agent(options.agent, options.work) as agent, Page(agent) as page:
        for check in CHECKS:
            if options.only in check.__name__:
                failed += not passes(check, page)
        if options.screenshots:
            looks.save_screenshots(page, options.screenshots)
    sys.exit(1 if failed else 0)


def passes(check, page):
    name = check.__name__.replace("_", " ")
    try:
        note = check(page)
        assert not (errors := page.errors()), f"console: {errors}"
    except Exception as error:
        print(f"FAIL  {name}: {error}", flush=True)
        if not isinstance(error, AssertionError):
            traceback.print_exc()
        return False
    print(f"ok    {name}" + (f": {note}" if note else ""), flush=True)
    return True


main()
