; GPT-2's layers over 64 positions, kernel by kernel (see gpt2_explicit.lisp).

(require-dialect arith gpu linalg math memref scf)
(require "sizes.lisp")

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
