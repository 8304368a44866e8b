import os

# These tests need JAX as it comes, which a process that runs the other tests no longer has.
collect_ignore_glob = [] if "UNIBIO_TEST_AS_USERS" in os.environ else ["test_*.py"]
