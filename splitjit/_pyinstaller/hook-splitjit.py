"""What a frozen program needs beyond the imports that PyInstaller finds in the source.

- Numba finds `splitjit._njit` by the entry point in the metadata of the distribution.
- `splitjit.files` and other submodules are imported when they are first used.
- Modules such as `splitjit.dask` import other packages. A frozen program contains these
  packages only if its own code imports them.
"""

from PyInstaller.utils.hooks import collect_submodules, copy_metadata

datas = copy_metadata("splitjit")
hiddenimports = collect_submodules("splitjit", lambda name: "_pyinstaller" not in name)
excludedimports = ["dask", "onnx", "torch", "tqdm", "transformers"]
