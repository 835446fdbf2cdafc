"""What each agent CLI needs and shows."""

if __name__ != "mam.agents":
    raise ImportError("import this package as mam.agents")
