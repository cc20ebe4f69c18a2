; GPT-2 124M with nothing hidden: a program whose main reads the checkpoint, runs every layer and prints what it writes.
;
;   lispgpt run examples/gpt2_explicit.lisp gpt2_124M_bf16.bin gpt2_tokenizer.bin 20
;   lispgpt run --target cuda:sm_90 examples/gpt2_explicit.lisp gpt2_124M_bf16.bin gpt2_tokenizer.bin 20
;   lispgpt compile --target rocm:gfx1151 examples/gpt2_explicit.lisp
;
; Arguments: a checkpoint of llm.c's (version 3 or 5), its tokenizer, and how many tokens to write (at most 63).
; The text starts from the end-of-text token; every token is the most probable one; all 64 positions are computed anew
; for each.  examples/gpt2.lisp is the same model in the model tier, with a cache.

(require-dialect arith func gpu linalg llvm math memref scf)

(link-library :c)
(extern-fn fopen (-> [!llvm.ptr !llvm.ptr] [!llvm.ptr]))
(extern-fn fread (-> [!llvm.ptr i64 i64 !llvm.ptr] [i64]))
(extern-fn fclose (-> [!llvm.ptr] [i32]))
(extern-fn atoi (-> [!llvm.ptr] [i32]))
(extern-fn malloc (-> [i64] [!llvm.ptr]))
(extern-fn putchar (-> [i32] [i32]))
(extern-fn exit (-> [i32] []))
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

; ---------------------------------------------------------------------------------------------------------------------
; Sizes, and short names for loops
; ---------------------------------------------------------------------------------------------------------------------

(def positions 64)
(def layers 12)
(def heads 12)
(def width 768)
(def vocab 50257)
(def padded-vocab 50304)

(def activations memref<64x768xf32>)
(def hidden memref<64x3072xf32>)
(def by-head memref<12x64x64xf32>)
(def vector memref<768xf32, strided<[1], offset: ?>>)

; A loop on the host over [0, count).
(defmacro each [[i count] & body]
  `(scf.for (: 0 index) ~count (: 1 index) (region (block [(: ~i index)] ~@body))))

; Independent iterations, which a GPU runs side by side.
(defmacro parallel [[i rows j columns] & body]
  `(scf.parallel {:operandSegmentSizes array<i32: 2, 2, 2, 0>}
     (: 0 index) (: 0 index) (: ~rows index) (: ~columns index) (: 1 index) (: 1 index)
     (region (block [(: ~i index) (: ~j index)] ~@body (scf.reduce)))))

; `blocks` blocks of one subgroup of 32 threads.
(defmacro rows-by-subgroups [[row lane blocks] & body]
  `(gpu.launch (: ~blocks index) (: 1 index) (: 1 index) (: 32 index) (: 1 index) (: 1 index)
     (region
       (block [(: ~row index) (: by index) (: bz index) (: ~lane index) (: ty index) (: tz index)
               (: gx index) (: gy index) (: gz index) (: sx index) (: sy index) (: sz index)]
         ~@body
         (gpu.terminator)))))

; In round k every lane takes in the value of the lane whose number differs in bit k.
(defn over-subgroup [combine value]
  (fold (fn [sum distance]
          (let [[other valid] (gpu.shuffle {:mode "#gpu<shuffle_mode xor>"} sum (: distance i32) (: 32 i32))]
            (combine sum other)))
        value [16 8 4 2 1]))

; combine over start and (term i) for every 32nd i from the lane's own, of `count` in all.
(defn lane-sum [combine start count lane term]
  (scf.for {:result f32} (: 0 index) (: (/ count 32) index) (: 1 index) start
    (region
      (block [(: step index) (: sum f32)]
        (scf.yield (combine sum (term (arith.addi (arith.muli step 32) lane))))))))

(defn add [a b] (arith.addf a b))
(defn largest [a b] (arith.maximumf a b))

; ---------------------------------------------------------------------------------------------------------------------
; The checkpoint
; ---------------------------------------------------------------------------------------------------------------------

(llvm.mlir.global {:sym_name "for-reading" :linkage "internal" :constant true :global_type !llvm.array<3 x i8>
                   :value "rb\0"}
  (region))

(defn address [m]
  (llvm.inttoptr {:result !llvm.ptr}
    (arith.index_cast {:result i64} (memref.extract_aligned_pointer_as_index m))))

(defn stop-if [condition message]
  (when condition
    (println message)
    (exit (: 1 i32))))

; Read `count` numbers of `bytes` bytes each (4: F32, 2: BF16) into the first `count` floats of the buffer.
(defn read-floats [(: file !llvm.ptr) (: bytes i64) (: count index) (: buffer memref<?xi8>)] -> []
  (def floats (memref.view {:result memref<?xf32>} buffer (: 0 index) count))
  (def size (arith.index_cast {:result i64} count))
  (if (=i bytes (: 4 i64))
    (do (def got (fread (address floats) bytes size file))
        (stop-if (!=i got size) "the checkpoint is too short"))
    ; BF16 goes to the buffer's second half, and from there, front to back, over all of it.
    (do (def halves (memref.view {:result memref<?xbf16>} buffer (arith.muli count 2) count))
        (def start (llvm.getelementptr {:elem_type i8 :rawConstantIndices array<i32: -2147483648> :result !llvm.ptr}
                     (address buffer) (arith.muli size 2)))
        (def got (fread start bytes size file))
        (stop-if (!=i got size) "the checkpoint is too short")
        (each [i count]
          (memref.store (arith.extf {:result f32} (memref.load halves i)) floats i)))))

; A tensor of rows, as it is.
(defn read-rows [(: file !llvm.ptr) (: bytes i64) (: buffer memref<?xi8>) (: to memref<?x?xf32>)] -> []
  (def columns (memref.dim to (: 1 index)))
  (def floats (memref.view {:result memref<?xf32>} buffer (: 0 index) columns))
  (each [row (memref.dim to (: 0 index))]
    (read-floats file bytes columns buffer)
    (each [column columns]
      (memref.store (memref.load floats column) to row column))))

; Matrices, one for each layer, transposed to (in, out) and cut to BF16.
(defn read-matrices [(: file !llvm.ptr) (: bytes i64) (: buffer memref<?xi8>) (: to memref<?x?x?xbf16>)] -> []
  (def ins (memref.dim to (: 1 index)))
  (def outs (memref.dim to (: 2 index)))
  (def floats (memref.view {:result memref<?x?xf32>} buffer (: 0 index) outs ins))
  (each [layer (memref.dim to (: 0 index))]
    (read-floats file bytes (arith.muli ins outs) buffer)
    (each [i ins]
      (each [o outs]
        (memref.store (arith.truncf {:result bf16} (memref.load floats o i)) to layer i o)))))

; Embeddings, cut to BF16.  The tokens' is the last layer's matrix as well, and both stay as they are.
(defn read-embedding [(: file !llvm.ptr) (: bytes i64) (: buffer memref<?xi8>) (: to memref<?x768xbf16>)] -> []
  (def floats (memref.view {:result memref<?xf32>} buffer (: 0 index) (: width index)))
  (each [row (memref.dim to (: 0 index))]
    (read-floats file bytes (: width index) buffer)
    (each [c (: width index)]
      (memref.store (arith.truncf {:result bf16} (memref.load floats c)) to row c))))

; ---------------------------------------------------------------------------------------------------------------------
; Layers
; ---------------------------------------------------------------------------------------------------------------------

; out = inp · weights + bias; the sums are F32.  With `accumulate` the sums are added to what out holds.
(defn product [out inp weights bias accumulate]
  (linalg.generic {:ins 1 :outs 1
                   :indexing_maps [affine_map<(t, o) -> (o)> affine_map<(t, o) -> (t, o)>]
                   :iterator_types ["parallel" "parallel"]}
    bias out
    (region
      (block [(: b f32) (: old f32)]
        (linalg.yield (if accumulate (arith.addf old b) b)))))
  (linalg.generic {:ins 2 :outs 1
                   :indexing_maps [affine_map<(t, o, i) -> (t, i)> affine_map<(t, o, i) -> (i, o)>
                                   affine_map<(t, o, i) -> (t, o)>]
                   :iterator_types ["parallel" "parallel" "reduction"]}
    inp weights out
    (region
      (block [(: x f32) (: w bf16) (: sum f32)]
        (linalg.yield (arith.addf sum (arith.mulf x (arith.extf {:result f32} w))))))))

(defn layer-norm [(: out activations) (: inp activations) (: scale vector) (: shift vector)] -> []
  (rows-by-subgroups [row lane positions]
    (def n (: 768.0 f32))
    (def sum (lane-sum add (: 0.0 f32) width lane (fn [c] (memref.load inp row c))))
    (def mean (arith.divf (over-subgroup add sum) n))
    (def squares
      (lane-sum add (: 0.0 f32) width lane
                (fn [c] (let [d (arith.subf (memref.load inp row c) mean)] (arith.mulf d d)))))
    (def variance (arith.divf (over-subgroup add squares) n))
    (def factor (arith.divf (: 1.0 f32) (math.sqrt (arith.addf variance (: 1e-5 f32)))))
    (scf.for (: 0 index) (: 24 index) (: 1 index)
      (region
        (block [(: step index)]
          (def c (arith.addi (arith.muli step 32) lane))
          (def normal (arith.mulf (arith.subf (memref.load inp row c) mean) factor))
          (memref.store (arith.addf (arith.mulf normal (memref.load scale c)) (memref.load shift c)) out row c))))))

; Softmax over the keys that a query may see, after dividing by the root of a head's width: one subgroup a query.
(defn causal-softmax [(: weights by-head) (: scores by-head)] -> []
  (rows-by-subgroups [row lane (* heads positions)]
    (def head (arith.divui row (: positions index)))
    (def query (arith.remui row (: positions index)))
    (defn score [key]
      (arith.select (arith.cmpi {:predicate "ule"} key query)
        (arith.mulf (memref.load scores head query key) (: 0.125 f32)) (: -1e30 f32)))
    (def most (over-subgroup largest (lane-sum largest (: -1e30 f32) positions lane score)))
    (defn weight [key] (math.exp (arith.subf (score key) most)))
    (def total (over-subgroup add (lane-sum add (: 0.0 f32) positions lane weight)))
    (scf.for (: 0 index) (: 2 index) (: 1 index)
      (region
        (block [(: step index)]
          (def key (arith.addi (arith.muli step 32) lane))
          (memref.store (arith.divf (weight key) total) weights head query key))))))

; q, k and v lie side by side in a row of `qkv`; keys are stored transposed, so that both products are plain ones.
(defn attention [(: out activations) (: qkv memref<64x2304xf32>) (: q by-head) (: k by-head) (: v by-head)
                 (: scores by-head) (: weights by-head)] -> []
  (parallel [t positions c width]
    (def head (arith.divui c (: 64 index)))
    (def d (arith.remui c (: 64 index)))
    (memref.store (memref.load qkv t c) q head t d)
    (memref.store (memref.load qkv t (arith.addi c width)) k head d t)
    (memref.store (memref.load qkv t (arith.addi c (* 2 width))) v head t d))
  (linalg.fill {:ins 1 :outs 1} (: 0.0 f32) scores)
  (linalg.batch_matmul {:ins 2 :outs 1} q k scores)
  (causal-softmax weights scores)
  (linalg.fill {:ins 1 :outs 1} (: 0.0 f32) q)
  (linalg.batch_matmul {:ins 2 :outs 1} weights v q)
  (parallel [t positions c width]
    (def head (arith.divui c (: 64 index)))
    (def d (arith.remui c (: 64 index)))
    (memref.store (memref.load q head t d) out t c)))

(defn gelu [(: h hidden)] -> []
  (parallel [t positions c 3072]
    (def x (memref.load h t c))
    (def cubic (arith.mulf (arith.mulf (arith.mulf x x) x) (: 0.044715 f32)))
    (def inner (arith.mulf (arith.addf x cubic) (: 0.7978845608 f32)))
    (def half (arith.mulf x (: 0.5 f32)))
    (memref.store (arith.addf half (arith.mulf half (math.tanh inner))) h t c)))

(defn embed [(: x activations) (: tokens memref<64xi32>) (: wte memref<50304x768xbf16>)
             (: wpe memref<1024x768xbf16>)] -> []
  (parallel [t positions c width]
    (def token (arith.index_cast {:result index} (memref.load tokens t)))
    (def meaning (arith.extf {:result f32} (memref.load wte token c)))
    (def place (arith.extf {:result f32} (memref.load wpe t c)))
    (memref.store (arith.addf meaning place) x t c)))

; logits = row · wte, and the most probable of the real tokens.  The tokens are looked at as 1572 rows of 32, so that
; this, too, is a loop over two dimensions.
(defn next-token [(: row vector) (: wte memref<50304x768xbf16>) (: logits memref<1572x32xf32>)] -> i32
  (def table
    (memref.expand_shape {:reassociation [[0 1] [2]] :static_output_shape [1572 32 768]
                          :result memref<1572x32x768xbf16>}
      wte))
  (linalg.fill {:ins 1 :outs 1} (: 0.0 f32) logits)
  (linalg.generic {:ins 2 :outs 1
                   :indexing_maps [affine_map<(u, v, c) -> (c)> affine_map<(u, v, c) -> (u, v, c)>
                                   affine_map<(u, v, c) -> (u, v)>]
                   :iterator_types ["parallel" "parallel" "reduction"]}
    row table logits
    (region
      (block [(: x f32) (: w bf16) (: sum f32)]
        (linalg.yield (arith.addf sum (arith.mulf x (arith.extf {:result f32} w)))))))
  (def all
    (memref.collapse_shape {:reassociation [[0 1]] :result memref<50304xf32>} logits))
  (def [value token]
    (scf.for {:result [f32 i32]} (: 1 index) (: vocab index) (: 1 index) (memref.load all (: 0 index)) (: 0 i32)
      (region
        (block [(: i index) (: best f32) (: at i32)]
          (def logit (memref.load all i))
          (def better (arith.cmpf {:predicate "ogt"} logit best))
          (scf.yield (arith.select better logit best)
                     (arith.select better (arith.index_cast {:result i32} i) at))))))
  token)

; ---------------------------------------------------------------------------------------------------------------------
; The tokenizer: a length and that many bytes for every token
; ---------------------------------------------------------------------------------------------------------------------

(defn byte-at [text i]
  (llvm.load {:result i8}
    (llvm.getelementptr {:elem_type i8 :rawConstantIndices array<i32: -2147483648> :result !llvm.ptr} text i)))

; Where each token's piece starts: its length, then its bytes.
(defn read-pieces [(: path !llvm.ptr) (: pieces memref<50257xi64>) (: header memref<256xi32>)] -> []
  (def file (fopen path (llvm.mlir.addressof {:global_name @for-reading :result !llvm.ptr})))
  (stop-if (null? file) "cannot open the tokenizer")
  (fread (address header) (: 4 i64) (: 256 i64) file)
  (stop-if (!=i (memref.load header 0) (: 20240328 i32)) "the second argument is not a tokenizer of llm.c's")
  (each [token (: vocab index)]
    (def piece (malloc (: 256 i64)))
    (fread piece (: 1 i64) (: 1 i64) file)
    (def length (arith.extui {:result i64} (byte-at piece (: 0 i64))))
    (def bytes (llvm.getelementptr {:elem_type i8 :rawConstantIndices array<i32: 1> :result !llvm.ptr} piece))
    (fread bytes (: 1 i64) length file)
    (memref.store (llvm.ptrtoint {:result i64} piece) pieces token))
  (fclose file))

(defn print-token [(: pieces memref<50257xi64>) (: token i32)] -> []
  (def piece (llvm.inttoptr {:result !llvm.ptr} (memref.load pieces (arith.index_cast {:result index} token))))
  (def length (arith.index_castui {:result index} (byte-at piece (: 0 i64))))
  (each [i length]
    (def place (arith.index_cast {:result i64} (arith.addi i 1)))
    (putchar (arith.extui {:result i32} (byte-at piece place)))))

; ---------------------------------------------------------------------------------------------------------------------
; All of it
; ---------------------------------------------------------------------------------------------------------------------

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
