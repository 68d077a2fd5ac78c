"""Checkpoints: all that a run needs to go on from an epoch with the same bits, on any number of processes.

    RUN/checkpoints/
        epoch-00000040/
            layer-001-shard-01.safetensors   the variables of a layer, for the samples of a shard
            layer-002-shard-01.safetensors
            manifest.json                    the rest, and the SHA-256 of every file; written last
        epoch-00000080/
        latest -> epoch-00000080
        .saving-…                            one that is being written, or that a dead run left
        epoch-00000060.aside                 one that a resumed run could not use

A checkpoint is written under another name and renamed when it is complete and every file has been read back; so what
has the name of an epoch was whole once, and the manifest tells whether it still is. Two are kept.

Where hosts do not share a file system, each has a run directory with the files of its own layers and a manifest.
"""
