"""The one place that holds the version of the running code (never an environment variable)."""

VERSION = "0.2.0.dev0"
