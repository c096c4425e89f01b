"""Files for the tests of the readers."""


def write(folder, **files):
    """Write files by name, the last underscore standing for the dot."""
    for name, content in files.items():
        path = folder / ".".join(name.rsplit("_", 1))
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder
