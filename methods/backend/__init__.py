"""The one room that knows verl: it makes verl train with the catalogue's methods, on a CPU as on a GPU.

`plugin` is what verl loads (entry point group `verl.plugins`, or VERL_USE_EXTERNAL_MODULES=methods.backend.plugin);
`launch` runs one training in this process; `recipe` turns one run of the grid into verl's own configuration.
"""
