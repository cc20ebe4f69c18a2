; GPT-2 124M with nothing hidden: a program whose main reads the checkpoint, runs every layer and prints what it writes.
;
;   lispgpt run examples/gpt2_explicit.lisp gpt2_124M_bf16.bin gpt2_tokenizer.bin 20
;   lispgpt run --target cuda:sm_90 examples/gpt2_explicit.lisp gpt2_124M_bf16.bin gpt2_tokenizer.bin 20
;   lispgpt compile --target rocm:gfx1151 examples/gpt2_explicit.lisp
;
; Arguments: a checkpoint of llm.c's (version 3 or 5), its tokenizer, and how many tokens to write (at most 63).
; The text starts from the end-of-text token; every token is the most probable one; all 64 positions are computed anew
; for each.  examples/gpt2.lisp is the same model in the model tier, with a cache.  Its parts are in gpt2_explicit/.

(require-dialect arith func gpu linalg llvm math memref scf)

(require "gpt2_explicit/sizes.lisp" "gpt2_explicit/files.lisp" "gpt2_explicit/layers.lisp")

(link-library :c)
(extern-fn atoi (-> [!llvm.ptr] [i32]))
(extern-fn clock_ms (-> [] [i64]))

; On a GPU: linear algebra and parallel loops become kernels of 4 by 16 threads, beside the ones written below.  (A loop
; whose extents these do not divide would stay on the host, hence the 4, which divides the 12 heads.)
(compilation
  (target rocm
    (pass convert-linalg-to-parallel-loops)
    (pass sums-in-registers)
    (pass scf-parallel-loop-tiling {:parallel-loop-tile-sizes "4,16"})
    (pass gpu-map-parallel-loops)
    (pass convert-parallel-loops-to-gpu)
    (pass lower-affine)
    (pass convert-scf-to-cf)
    (pass gpu-kernel-outlining)
    (pass rocdl-attach-target)
    (pass convert-gpu-to-rocdl)
    (pass gpu-module-to-binary)
    (pass gpu-to-llvm)
    (pass expand-strided-metadata)
    (pass lower-affine)
    (pass convert-cf-to-llvm)
    (pass arith-expand {:include-bf16 true})
    (pass convert-arith-to-llvm)
    (pass convert-index-to-llvm)
    (pass convert-math-to-llvm)
    (pass convert-func-to-llvm)
    (pass finalize-memref-to-llvm)
    (pass reconcile-unrealized-casts)))

; Memory that a GPU's kernels may use in place.
(defn shared [type unranked]
  (let [m (memref.alloc {:result type})]
    (gpu.host_register (memref.cast {:result unranked} m))
    m))
(defn floats [type] (shared type memref<*xf32>))
(defn weights [type] (shared type memref<*xbf16>))

; Layer l's own part of a stack of vectors or of matrices.
(def unknown -9223372036854775808)
(defn vector-of [stack l size type]
  (memref.subview {:static_offsets [unknown 0] :static_sizes [1 size] :static_strides [1 1] :result type} stack l))
(defn matrix-of [stack l ins outs type]
  (memref.subview {:static_offsets [unknown 0 0] :static_sizes [1 ins outs] :static_strides [1 1 1] :result type}
    stack l))

(defn main [(: argc i64) (: argv !llvm.ptr)] -> []
  (stop-if (<i argc (: 3 i64)) "arguments: a checkpoint, its tokenizer, how many tokens to write")
  (def started (clock_ms))
  (def checkpoint-path (ptr-load !llvm.ptr argv))
  (def tokenizer-path (ptr-load !llvm.ptr (ptr-at !llvm.ptr argv (: 1 i64))))
  (def wanted (arith.index_cast {:result index} (atoi (ptr-load !llvm.ptr (ptr-at !llvm.ptr argv (: 2 i64))))))
  (def count (arith.minsi wanted (: 63 index)))

  (def header (memref.alloc {:result memref<256xi32>}))
  (def pieces (memref.alloc {:result memref<50257xi64>}))
  (read-pieces tokenizer-path pieces header)

  (def file (fopen checkpoint-path (llvm.mlir.addressof {:global_name @for-reading :result !llvm.ptr})))
  (stop-if (null? file) "cannot open the checkpoint")
  (fread (address header) (: 4 i64) (: 256 i64) file)
  (stop-if (!=i (memref.load header 0) (: 20240326 i32)) "the first argument is not a checkpoint of llm.c's")
  (for [field [[2 1024] [3 vocab] [4 layers] [5 heads] [6 width] [7 padded-vocab]]]
    (stop-if (!=i (memref.load header (nth field 0)) (: (nth field 1) i32)) "this is not the 124M model"))
  (def bytes (arith.select (arith.cmpi {:predicate "eq"} (memref.load header 1) (: 5 i32)) (: 2 i64) (: 4 i64)))

  (def buffer (memref.alloc {:result memref<?xi8>} (: 9437184 index)))
  (def wte (weights memref<50304x768xbf16>))
  (def wpe (weights memref<1024x768xbf16>))
  (def ln1-w (floats memref<12x768xf32>))
  (def ln1-b (floats memref<12x768xf32>))
  (def qkv-w (weights memref<12x768x2304xbf16>))
  (def qkv-b (floats memref<12x2304xf32>))
  (def proj-w (weights memref<12x768x768xbf16>))
  (def proj-b (floats memref<12x768xf32>))
  (def ln2-w (floats memref<12x768xf32>))
  (def ln2-b (floats memref<12x768xf32>))
  (def fc-w (weights memref<12x768x3072xbf16>))
  (def fc-b (floats memref<12x3072xf32>))
  (def out-w (weights memref<12x3072x768xbf16>))
  (def out-b (floats memref<12x768xf32>))
  (def lnf-w (floats memref<1x768xf32>))
  (def lnf-b (floats memref<1x768xf32>))
  (for [m [wte wpe]]
    (read-embedding file bytes buffer (memref.cast {:result memref<?x768xbf16>} m)))
  (defn vectors [m] (read-rows file bytes buffer (memref.cast {:result memref<?x?xf32>} m)))
  (defn matrices [m] (read-matrices file bytes buffer (memref.cast {:result memref<?x?x?xbf16>} m)))
  (for [m [ln1-w ln1-b]] (vectors m))
  (matrices qkv-w)
  (vectors qkv-b)
  (matrices proj-w)
  (for [m [proj-b ln2-w ln2-b]] (vectors m))
  (matrices fc-w)
  (vectors fc-b)
  (matrices out-w)
  (for [m [out-b lnf-w lnf-b]] (vectors m))
  (fclose file)

  (def tokens (shared memref<64xi32> memref<*xi32>))
  (each [t (: positions index)]
    (memref.store (: 50256 i32) tokens t))
  (def x (floats activations))
  (def normal (floats activations))
  (def mixed (floats activations))
  (def qkv (floats memref<64x2304xf32>))
  (def h (floats hidden))
  (def q (floats by-head))
  (def k (floats by-head))
  (def v (floats by-head))
  (def scores (floats by-head))
  (def attending (floats by-head))
  (def logits (floats memref<1572x32xf32>))
  (def loaded (clock_ms))

  (each [position count]
    (embed x tokens wte wpe)
    (each [l (: layers index)]
      (layer-norm normal x (vector-of ln1-w l width vector) (vector-of ln1-b l width vector))
      (product qkv normal
               (matrix-of qkv-w l width 2304 memref<768x2304xbf16, strided<[2304, 1], offset: ?>>)
               (vector-of qkv-b l 2304 memref<2304xf32, strided<[1], offset: ?>>) false)
      (attention mixed qkv q k v scores attending)
      (product x mixed
               (matrix-of proj-w l width width memref<768x768xbf16, strided<[768, 1], offset: ?>>)
               (vector-of proj-b l width vector) true)
      (layer-norm normal x (vector-of ln2-w l width vector) (vector-of ln2-b l width vector))
      (product h normal
               (matrix-of fc-w l width 3072 memref<768x3072xbf16, strided<[3072, 1], offset: ?>>)
               (vector-of fc-b l 3072 memref<3072xf32, strided<[1], offset: ?>>) false)
      (gelu h)
      (product x h
               (matrix-of out-w l 3072 width memref<3072x768xbf16, strided<[768, 1], offset: ?>>)
               (vector-of out-b l width vector) true))
    (layer-norm normal x (vector-of lnf-w (: 0 index) width vector) (vector-of lnf-b (: 0 index) width vector))
    (def token (next-token (vector-of normal position width vector) wte logits))
    (memref.store token tokens (arith.addi position 1))
    (print-token pieces token))
  (def finished (clock_ms))

  (println "")
  (print "tokens:")
  (each [i count]
    (print " %d" (memref.load tokens (arith.addi i 1))))
  (println "")
  (println "read in %ld ms; %ld ms a token" (arith.subi loaded started)
           (arith.divsi (arith.subi finished loaded) (arith.maxsi (arith.index_cast {:result i64} count) 1))))
