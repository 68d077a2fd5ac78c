"""Where the layers live."""
