"""Everything in the tree that is made from something else: ``python -m wattpack.generate``.

Each source is a function ``produce() -> {path relative to the repository: content}``. Development
only: it needs grpcio-tools and mypy-protobuf, which an installed wattpack does not.
"""
