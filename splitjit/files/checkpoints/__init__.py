"""What models add to files: indexes, ranks, records, model plans, and quantised weights.

The public functions of `splitjit.files` and the command call `operations` and `described`; nothing
else imports this package. It calls the other modules of `splitjit.files`, which have no table of
models. Facts about model families are tables: ``PRESETS`` in ``presets``, the styles in
``tensor_parallel``, the layouts in ``quantised``, the names in ``naming`` and ``siblings``::

    operations          plan a split, a join or a reshard; write all files, or none
      ├─ index            a file, an index or a folder ─► a Checkpoint
      ├─ tensor_parallel  which tensors the model splits; presets, quantised, ask_transformers
      ├─ sharding         the parts of each file; naming, record, siblings
      ├─ joining          the whole of each file, from parts in the order of their records
      └─ described        plans and files as plain data
"""
