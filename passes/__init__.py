"""From linalg on tensors to kernels and a plan: passes, one a file, in rooms by what they are about.

    pipelines/      which passes run, in which order, as data in the language itself
    recognise/      what an entry's ops are together: products, attention, norms of rows, writes to a cache
    distribute/     what several devices share, and what they exchange for it
    model/          which ops become one kernel, and what is changed ahead of that: slices, norms, weights made once
    memory/         where tensors that cross kernels lie
    schedule/       how a chip runs a kernel, by family: rows/, products/, warpgroups/, attention/, cpu/
    kernels/        what schedules are written with: elements read where they are wanted, operands, softmax, rings
    tile/           kernels written by tiles, which take the schedules' place family by family
    decode_step/    a decode step in one launch, whose layers are split over clusters of blocks
    plan/           an entry's calls as the steps of a plan
    lower/          from scheduled kernels to the dialects of chips and of LLVM
    targets/        chips by their capabilities, and what only one vendor has

base.py says what a pass is, pipeline.py runs them, states.py what a module has to be for one, library.py what a
schedule is.  Imports go one way among rooms: from schedules to recognition and to targets, never back.
"""
