"""The command line: one module a command, all built on the library's own doors."""
