"""The tests: programs that are run at the checkout's root, as their first lines say, and what they import."""

import os

# For a test's programs that run in another directory.
os.environ["PYTHONPATH"] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
