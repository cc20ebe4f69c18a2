; From linalg on tensors to machine code for a CPU.  Copy this file, change it, and pass it with --pipeline.

(pipeline cpu
  (stage kernels                      ; one function for each distinct kernel, calls in the entries
    (pass convert-elementwise-to-linalg) ; arith and math on tensors, written by name
    (pass drop-empty)                 ; what has no elements is neither made nor read
    (pass mask-rows)                  ; of entries for any size up to one
    (pass bound-inputs)               ; what inputs may be by which rows are read
    (pass shard-batch {:devices 1})  ; `--devices` sets it
    (pass shard-states {:devices 1}) ; and `--shard-optimizer` this
    (pass outline-loops)              ; the rounds of loops over tensors, once for all of them
    (pass cse)
    (pass straighten-reductions)      ; sums over any dimension read what is there as it lies
    (pass hoist-slices)               ; what is read of a slice alone is made for it alone
    (pass contract-products)
    (pass round-activations {:precision "exact"})  ; `--precision` sets it
    (pass outline-kernels {:gathers true})
    (pass recognise-products))
  (stage plan                         ; every tensor that crosses kernels has memory
    (pass destination-passing)
    (pass count-work)
    (pass place-hand-kernels))
  (stage schedule                     ; loops over blocks, rows and vectors
    (pass schedule-generic {:kind "elementwise"})
    (pass schedule-generic {:kind "scatter"})
    (pass choose-tiles {:use "rows"}) ; as tile programs
    (pass lower-tiles)
    (pass schedule-contractions {:outputs 48 :rows 16 :rows-tile 4 :outputs-tile 6 :vector-outputs 1 :depth-unroll 4})
    (pass schedule-attention {:queries 32 :query-tile 4 :key-tile 4})
    (pass schedule-attention-gradients)
    (pass divide-kernels)             ; what none of them took, op by op
    (pass recognise-products)
    (pass choose-tiles {:use "rows"}) ; as tile programs
    (pass lower-tiles)
    (pass schedule-contractions {:outputs 48 :rows 16 :rows-tile 4 :outputs-tile 6 :vector-outputs 1 :depth-unroll 4})
    (pass schedule-generic)
    (pass run-in-order)
    (pass hand-kernels-to-cpu)
    (pass join-collectives)
    (pass plan-arena))
  (stage loops                        ; the entries become the plan; kernels are all that is left
    (pass emit-plan)
    (pass expand-math {:shifted-bf16 true})
    (pass number-blocks)
    (pass canonicalize)
    (pass cse))
  (stage llvm
    (pass expand-strided-metadata)
    (pass lower-affine)
    (pass convert-scf-to-cf)
    (pass convert-vector-to-llvm)
    (pass convert-math-to-llvm)
    (pass convert-math-to-libm)
    (pass convert-vector-to-llvm)     ; of what libm takes number by number
    (pass convert-index-to-llvm)
    (pass convert-arith-to-llvm)
    (pass convert-ub-to-llvm)
    (pass finalize-memref-to-llvm)
    (pass convert-func-to-llvm {:use-bare-ptr-memref-call-conv true})
    (pass convert-cf-to-llvm)
    (pass reconcile-unrealized-casts)
    (pass canonicalize)
    (pass wrap-cpu-kernels)           ; one signature for all, equal bodies once
    (pass line-tables)))              ; the program's lines, for debuggers and profilers
