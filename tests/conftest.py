"""How hard the properties search. `HIVEMIND_TEST_PROFILE=long` is for a night, `draft` for while one writes."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import tempfile

from hypothesis import HealthCheck, Phase, settings

from tests.support import forked

# No deadline per example, and none for drawing one: how long that takes says something about the machine and nothing
# about the code.
settings.register_profile("any", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
# The gate asks the same questions each time, so that what is red is red because of what was changed.
settings.register_profile(
    "ci", settings.get_profile("any"), max_examples=100, stateful_step_count=40, derandomize=True, database=None
)
settings.register_profile("long", settings.get_profile("any"), max_examples=20_000, stateful_step_count=80)
# While writing: what fails is shown as it was found, for shrinking a long history takes minutes.
settings.register_profile(
    "draft",
    settings.get_profile("any"),
    max_examples=100,
    stateful_step_count=40,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
# Proxies under test leave their state in a folder of the test run, not in the user's.
_state = tempfile.mkdtemp(prefix="hivemind-state-")
atexit.register(shutil.rmtree, _state, ignore_errors=True)
os.environ["XDG_STATE_HOME"] = _state
os.environ.pop("XDG_RUNTIME_DIR", None)
# pytest-xdist says 80 in its workers: output is as wide as it comes unless a test says how wide.
os.environ.pop("COLUMNS", None)
settings.load_profile(os.environ.get("HIVEMIND_TEST_PROFILE", "ci"))
forked.install()


def pytest_collection_finish() -> None:
    """Exempt modules and collected tests from garbage collection: they outlive the run, and a full one took 1.5 s."""
    gc.collect()
    gc.freeze()
