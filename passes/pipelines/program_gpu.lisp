; A program with a main and GPU kernels but no compilation form of its own: kernels to the chip's code, the rest to LLVM.
; The chip, and for NVIDIA the two vendor passes, are filled in.

(stage tensors
  (pass convert-elementwise-to-linalg)
  (pass convert-tensor-to-linalg)
  (pass bufferize-tensors)
  (pass convert-bufferization-to-memref)
  (pass loop-softmax))

(stage kernels
  (pass convert-linalg-to-loops)
  (pass gpu-kernel-outlining)
  (pass lower-vector-multi-reduction)
  (pass convert-vector-to-scf)
  (pass lower-affine)
  (pass expand-strided-metadata)
  (pass lower-affine)
  (pass convert-scf-to-cf)
  (pass rocdl-attach-target)
  (pass arith-expand {:include-bf16 true})
  (pass convert-gpu-to-rocdl)
  (pass gpu-module-to-binary))

(stage llvm
  (pass memref-expand)
  (pass convert-complex-to-standard)
  (pass math-extend-to-supported-types {:extra-types "f32" :target-type "f32"})
  (pass convert-math-to-llvm)
  (pass convert-math-to-libm)
  (pass gpu-to-llvm)
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
  (pass reconcile-unrealized-casts))
