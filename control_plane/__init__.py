"""What it all means: keeps, decides, shows."""

if __name__ != "mam.control_plane":
    raise ImportError("import this package as mam.control_plane")
