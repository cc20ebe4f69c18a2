"""Programs: files with a `main`, compiled to LLVM and run in a child process.

`launch` is what the command line calls.  The rest: `adaptation` chooses and fits the pipeline, `child` is the process,
`execution` makes and calls machine code, `externals` is what a program may call, `mgpu` how its launches reach a GPU.
"""
