; From linalg on tensors to kernels for a GPU, AMD's (rocm) or NVIDIA's (cuda).  They share all of it: what a vendor has
; of its own comes from the target.  Copy this file, change it, and pass it with --pipeline.

(pipeline gpu
  (stage kernels                      ; one function for each distinct kernel, calls in the entries
    (pass convert-elementwise-to-linalg) ; arith and math on tensors, written by name
    (pass drop-empty)                 ; what has no elements is neither made nor read
    (pass mask-rows)                  ; of entries for any size up to one
    (pass bound-inputs)               ; what inputs may be by which rows are read
    (pass shard-batch {:devices 1})  ; `--devices` sets it
    (pass shard-states {:devices 1}) ; and `--shard-optimizer` this
    (pass outline-loops)              ; the rounds of loops over tensors, once for all of them
    (pass cse)
    (pass hoist-slices)               ; what is read of a slice alone is made for it alone
    (pass contract-products)
    (pass defer-norms)                ; until behind products that read them
    (pass round-activations {:precision "exact" :least 2})  ; `--precision` sets it
    (pass store-parts)
    (pass make-weights)               ; what is marked `once` is made when weights are loaded
    (pass widen-weights)              ; ahead of products of many rows; {:when "always"} or "never", not by modelled cost
    (pass outline-kernels {:prologue-rows 16 :column-sums 2 :cached-rows 32})
    (pass recognise-products))
  (stage plan                         ; every tensor that crosses kernels has memory
    (pass destination-passing)
    (pass count-work)
    (pass place-hand-kernels)
    (pass split-decode))              ; {:when "always"} or "never" instead of by modelled cost
  (stage schedule                     ; blocks, subgroups and vectors, by the chip's capabilities
    (pass join-products)              ; of the same rows, where what becomes of them takes less time
    (pass choose {:takes false})      ; what the library's would take, where there are yours beside them
    (pass choose-tiles)               ; kernels as tile programs: by `--schedules`
    (pass lower-tiles)
    (pass schedule-generic {:kind "elementwise"})
    (pass schedule-gpu-scatters)
    (pass choose)                     ; of all schedules of products that which should take least time
    (pass choose-tiles {:use "direct skinny" :copies "async"})
    (pass schedule-gpu-warpgroups)
    (pass choose-tiles {:use "widen rows column-sums matmul" :copies "registers"})
    (pass lower-tiles)
    (pass schedule-gpu-contractions)
    (pass schedule-gpu-column-contractions)
    (pass choose-tiles {:use "attention" :copies "bulk"})
    (pass choose-tiles {:use "attention-gradients"})
    (pass lower-tiles)
    (pass schedule-gpu-attention)
    (pass schedule-attention-gradients)
    (pass divide-kernels)             ; what none of them took, op by op
    (pass recognise-products)
    (pass choose)                     ; of all schedules of products that which should take least time
    (pass choose-tiles {:use "direct skinny" :copies "async"})
    (pass schedule-gpu-warpgroups)
    (pass choose-tiles {:use "widen rows column-sums matmul" :copies "registers"})
    (pass lower-tiles)
    (pass schedule-gpu-contractions)
    (pass schedule-gpu-column-contractions)
    (pass schedule-generic)
    (pass run-in-order)
    (pass join-collectives)
    (pass delay-collectives)          ; {:when "always"}: still to be proved on GPUs
    (pass plan-arena))
  (stage gpu                          ; the entries become the plan; kernels are all that is left
    (pass emit-plan)
    (pass expand-math)
    (pass collect-gpu-kernels)
    (pass math-intrinsics)
    (pass canonicalize)
    (pass cse))
  (stage llvm                         ; ROCDL or NVVM, as the target says, and LLVM around it
    (pass convert-scf-to-cf)
    (pass expand-strided-metadata)
    (pass lower-affine)
    (pass lower-gpu-kernels)
    (pass convert-vector-to-llvm)
    (pass convert-arith-to-llvm)
    (pass convert-ub-to-llvm)
    (pass reconcile-unrealized-casts)
    (pass line-tables)))              ; the program's lines, for debuggers and profilers
