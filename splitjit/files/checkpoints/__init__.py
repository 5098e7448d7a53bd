"""What models add to files: indexes, ranks, records, model plans, and quantised weights.

The public functions of `splitjit.files` and the command call `operations`; nothing else imports
this package. It calls the other modules of `splitjit.files`, which know nothing of models. Facts
about model families are tables: ``PRESETS`` in `presets`, the styles in `tensor_parallel`, the
layouts in `quantised`, the names in `sharding` and `siblings`.

The path of a command, such as ``splitjit split model --num-splits 4 --axis 0 --out parts``:

1. ``_cli/parser.py`` reads the arguments. ``_cli/on_files.py`` turns them into a rule and
   `sharding.Options`, as the public functions do; the rest is the same for both.
2. `operations` plans: `plan_split`, `plan_join` or `plan_reshard`.
3. `index` reads each path as a `Checkpoint`: a `TensorFile` (``formats/``) for each file, with the
   headers of its tensors, and the index if there is one.
4. `operations._chooser` says how each tensor is divided: by a pattern (``patterns.py``), by the
   plan of the model (`tensor_parallel`), or along the axis.
5. To join or reshard, `joining` orders the parts by their records, and makes a `JoinedFile` for
   each whole file: a `TensorFile` that exists only as parts. A reshard is then a split of these
   files, and a join writes each of them as its only part.
6. `sharding` plans the parts of each tensor (``file_plan.py``), names the new files, records the
   split (`record`), and makes the indexes.
7. The plan is a `SplitFiles` (``file_plan.py``): which files are written, and what is in them.
   ``--dry-run`` and `plan_files` end here; `operations.describe` makes it JSON.
8. `operations.write` carries it out in staging folders (``staging.py``).
9. ``tiles.py`` opens the files and moves the data: the system copies long runs from file to
   file, and short ones are split, or joined, in memory.
10. Once all new files are on disk, ``staging.py`` moves them into place, by way of ``disk.py``.
"""
