"""Kernels written by tiles: the stage between linalg on tensors and the dialects of chips.

    linalg on tensors ──choose-tiles──► tile program ──lower-tiles──► gpu, vector, nvgpu, amdgpu, PTX

What a kernel computes is linalg, and stays in its function.  How a chip computes it is the tile program behind that:
what each block brings to shared memory and when, who multiplies, and what is stored.  A schedule writes it, in Lisp.
This page is all that there is to know to write one.

**Values.** A *view* shows a tensor of the kernel as [batch, outer, inner] elements, computed where they are read: it
may be memory, or what elementwise ops make of memory.  A *shared tile* is BF16 numbers in a block's shared memory,
`slots` of it; F32 ones are split into *parts* that add up to them.  A *ring* is shared tiles whose slots are filled
ahead of their use.  A *register tile* is spread over a block's threads.  All that is known of a value stands in its
type (types.py).

**Ops**

    tile.view tensor:  a view; `batch`, `outer` and `inner` are the tensor's dimensions of each kind
    tile.shared:  a shared tile
    tile.slot tile number:  the slot that the number, modulo the slots, names
    tile.load view batch outer inner:  a box of a view, on its way in registers; zeros past the view's end.  `later`:
        what is made of memory's elements is made when they are put
    tile.reduce_rows view batch outer:  what reductions make `rows` rows of a view from there on, such as a norm's, is
        computed by the block together: tile.load reads what came of it
    tile.put patches slot:  stored there; others may read it behind a barrier
    tile.operand view batch outer inner:  a box of a view, of which each lane loads what it multiplies; the result's
        layout says of which operand, and rows past the view's end are its last one's.  Weights in `blocks` stay in them
    tile.split operand:  the same as BF16 numbers, so many to an element
    tile.ring:  a ring; its `copies` are "async" (all threads copy pieces) or "bulk" (one thread copies boxes)
    tile.fill ring view batch outer inner number:  starts to bring a box to a slot, as the ring's `member`; that of a
        bulk ring waits until all who have read the slot have released it.  Of members that blocks of a cluster are
        `sharing` each brings a part to all
    tile.fetch product batch row column:  has what the results are made of beside these elements of a tile come to the
        cache that all cores share
    tile.wait ring number:  the number's slots; behind it a bulk ring's tiles are there for all, and of an async ring
        this thread's own copies, but those of the `ahead` newest numbers
    tile.member slots:  one of them
    tile.release ring number:  this role has read it
    tile.clear slot outer end:  lets what lies behind a view's end be zeros in a slot whose box starts at `outer`, where
        a bulk copy has brought whatever was there
    tile.drain ring:  waits for all of the thread's copies
    tile.zeros:  sums of nothing, [parts of k, rows, columns]; `teams` of a `unit` lie along rows and columns
    tile.mma sums a b:  sums + A · Bᵀ, on the unit's matrix instructions; both are shared, or operands in
        registers, or A alone is, where B may also be `across`: [k, columns].  `later`: it goes on by itself, and reads
        its tiles until the next such has been begun, or the sums are settled
    tile.settle sums:  once no instruction adds to them any more
    tile.add_parts sums:  those of members that share out k, added in a fixed order
    tile.store registers product batch row column beside…:  takes them for elements of the product, or of another tensor
        of the kernel, and stores what its results are of these; nothing past the end.  Of a kernel of several products
        it has the first's, and beside them those of the others in their order.  Of a cluster's blocks that are `splits`
        of k each stores some of the tile, once their sums are added in a fixed order
    tile.limit view end:  a view that ends there, along its outer dimension or if `inner` along its inner one: nothing
        behind it is read
    tile.visible batch row:  of attention's mask, for `rows` rows of queries from there on: the first position that any
        of them sees, the last that all see, and the last that any sees
    tile.reach task row:  of sums weighed by what is made of scores, for `rows` of their rows from there on: between
        which of what they are over any of them sums something, the end excluded
    tile.weights task row round along scores…:  what weighs each sum, of as many tiles of scores as are multiplied, from
        `along` on in one of the rounds; 0 past the end
    tile.mask scores batch row position least last:  scores from there on as the softmax takes them, divided by `over`;
        -infinity where a row does not see a position, and behind `last`.  All rows see what is not behind `least`
    tile.reduce registers:  each row of sums as one number, `by` a function; in shares of lanes, or whole
    tile.over_members rows:  what the members that share rows have of them together
    tile.broadcast rows:  each row's number all along it
    tile.as_operand sums:  as A of `tile.mma`, in BF16 parts
    tile.team:  which of a block's `teams` of `threads` each a thread is in: a team has a row of a kernel of rows, and
        reduces what it is made of.  Vectors of its threads are as long as the widest load of elements of so many
        `bytes`; of a long row each reads so many `together`.  Here tile.load, tile.store and tile.ask take, in place of
        an inner place, the number of so many columns, of which each thread has one vector, and tile.reduce_rows has
        what depends on a row alone computed ahead of a loop over them.  On CPUs a team is one thread, which does what
        all of a block's teams do, and the last vector of a row may reach past its end
    tile.keep view batch outer:  a row comes to shared memory, from where it is read from there on
    tile.ask view batch outer inner:  what a row is made of is read ahead; `early`: of that what no launch writes, ahead
        of waiting for the launches before
    tile.meet:  all of a role's threads wait for each other
    tile.role:  which of the roles, of so many `threads` each, a thread has; `scf.index_switch` branches by it

Register tiles are mapped element by element by `arith` and `math`, as vectors are.  Loops are `scf.for`, indices
`arith`, a block's number is `gpu.block_id`, and `gpu.barrier` is one of the whole block.

**Schedules** come from lispgpt/lib/kernels/, whose matmul.lisp takes products of eight rows and columns or more, whose
attention.lisp takes attention of many rows and attention_gradients.lisp its gradients, whose rows.lisp takes norms,
softmax and what else is computed row by row, and from a model's own file and others of a user's (`--schedules FILE`),
which come first.  A pipeline says which of the library's are used and how they may copy: gpu.lisp has what is no slower
than what was there before, and `(pass choose-tiles {:use "direct skinny warpgroups matmul" :copies "bulk"})` ahead of
other schedules has all.

    (schedule mine [p]
      {:takes (>= (tile.rows p) 64)}
      (let [[batch row column] (tile.task p [64 64])]             ; this block's tile of 64 by 64
        (tile.pipeline p 2 (ceil-div (tile.inner p) 32)           ; in steps of 32, with two slots
          (fn [n] [(tile.box (tile.right p) [batch column (* n 32)] [64 32])
                   (tile.box (tile.left p) [batch row (* n 32)] [64 32])])
          (fn [] (tile.sums p [64 64] 1 [2 2] "subgroup"))        ; by 2 x 2 subgroups
          (fn [sums [b a]] (tile.mma p sums a b))
          (fn [sums] (tile.store p sums [batch row column])))))

`(tile.tasks p [rows columns] [together splits] unit (fn [[batch row column]] …))` in place of `tile.task` is for what
bulk copies bring: a block has such tiles in turns, of which the next is on its way while one is stored, `together`
blocks of a cluster have tiles below each other and bring columns for each other, and `splits` share out the k of one.

`tile.pipeline` is the one word that becomes something else on each kind of chip (build.py): roles around a bulk ring
on sm_90a; a loop that fills an async ring ahead on sm_80, with loads beside it of what cannot be copied; loads into
registers ahead of a put elsewhere.  More than two slots ask for a ring, and `(tile.copies p columns)` says which it
will be.  Boxes that are `(tile.direct …)` come to the registers of those who multiply, on every chip: nobody waits.

**The dialect** is a real one: MLIR's IRDL defines it in every context (lispgpt/ir/tile_dialect.py), so that programs
are printed, parsed, located and dumped as everything else, `lispgpt opt` takes a dump, and MLIR checks what each op is
made of.  Types are MLIR's own with attributes, since Python cannot take types apart that IRDL defines.

**Safe.** verify.py executes the synchronisation of every program that is lowered, and refuses what could read too
early or write too soon.  **Its meaning needs no chip:** interpret.py executes a program by numpy, evaluate.py computes
the reference in float64, and both walk through programs by walk.py.

To add an op: a row in lispgpt/ir/tile_dialect.py, its types in check_types.py, what it does in verify.py, interpret.py
and lower/lowering.py, and a word in build.py and lispgpt/compiler/schedules.py.
"""
