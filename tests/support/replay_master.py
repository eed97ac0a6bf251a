"""Replay every configuration of a master file on a mock n300; fail if one does not pass: MASTER."""

import sys
from pathlib import Path

from optrove.interop.formats import read_file
from optrove.model.records import DeviceKind, Job, Outcome
from optrove.replay.worker import run_in_process

runs, _ = read_file(Path(sys.argv[1]))
jobs = [Job(each.case, DeviceKind.MOCK) for imported in runs for each in imported.cases]
attempts = list(run_in_process(jobs, board="n300"))
failed = [each for each in attempts if each.outcome is not Outcome.PASSED]
lines = [f"{each.outcome.value} {each.case_id} {each.detail}" for each in failed]
sys.exit("\n".join(lines) or (None if attempts else "there is nothing to replay"))
