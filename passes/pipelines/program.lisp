; A program with a main, down to LLVM, on the CPU: every dialect that a program may use.
; GPU kernels become loops (gpu-to-cpu), so that a program written for a GPU runs anywhere.

(stage tensors                                   ; values to memory
  (pass convert-elementwise-to-linalg)
  (pass convert-tensor-to-linalg)
  (pass bufferize-tensors)
  (pass convert-bufferization-to-memref)
  (pass loop-softmax))

(stage loops                                     ; linear algebra to loops, kernels apart from the host's code
  (pass vectorize-products)
  (pass convert-linalg-to-loops)
  (pass expand-math)
  (pass gpu-kernel-outlining)
  (pass lower-vector-multi-reduction)
  (pass convert-vector-to-scf)
  (pass lower-affine)
  (pass expand-strided-metadata)
  (pass lower-affine)
  (pass convert-scf-to-cf)
  (pass inline)
  (pass gpu-to-cpu)
  (pass convert-scf-to-cf))

(stage llvm                                      ; functions first: later passes call the runtime's by name
  (pass memref-expand)
  (pass arith-expand {:include-bf16 true})
  (pass convert-complex-to-standard)
  (pass math-extend-to-supported-types {:extra-types "f32" :target-type "f32"})
  (pass convert-math-to-llvm)
  (pass convert-math-to-libm)
  (pass convert-func-to-llvm)
  (pass convert-vector-to-llvm)
  (pass finalize-memref-to-llvm)
  (pass convert-complex-to-llvm)
  (pass arith-expand {:include-bf16 true})
  (pass convert-math-to-llvm)
  (pass convert-index-to-llvm)
  (pass convert-arith-to-llvm)
  (pass convert-ub-to-llvm)
  (pass convert-cf-to-llvm)
  (pass reconcile-unrealized-casts)
  (pass share-calls))
