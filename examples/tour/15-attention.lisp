; Causal attention in explicit loops: every position looks at itself and what came before it.
; "Attention Is All You Need", Vaswani et al. 2017, equation 1.
;
;   lispgpt run examples/tour/15-attention.lisp
;
; prints: 0:  0.000  0.841  0.909  0.141
; prints: 1:  0.453  0.947  0.571 -0.330
; prints: 2:  0.602  0.869  0.338 -0.504
; prints: 3:  0.551  0.717  0.224 -0.475
; prints: weights of the last position sum to 1.000

(require-dialect arith math memref scf)

(def positions 4)
(def size 4)
(def matrix memref<4x4xf32>)

; (each [i from to] body…) runs its body for every i; (total [i from to] start op value) joins the values.
(defmacro each [[i from to] & body]
  `(scf.for (: ~from index) ~to (: 1 index)
     (region (block [(: ~i index)] ~@body))))

(defmacro total [[i from to] start op value]
  `(scf.for {:result f32} (: ~from index) ~to (: 1 index) (: ~start f32)
     (region
       (block [(: ~i index) (: so-far f32)]
         (scf.yield (~op so-far ~value))))))

; scores[j] = q[i] · k[j] / √size, for j ≤ i
(defn score [(: q matrix) (: k matrix) (: scores memref<4xf32>) (: i index) (: end index)] -> []
  (each [j 0 end]
    (def product (total [d 0 (: size index)] 0.0 arith.addf
                   (arith.mulf (memref.load q i d) (memref.load k j d))))
    (memref.store (arith.divf product (sqrt size)) scores j)))

; exp(x - max) / sum, in place: subtracting the largest keeps exp from overflowing.
(defn softmax-in-place [(: x memref<4xf32>) (: end index)] -> []
  (def largest (total [j 0 end] -1e30 arith.maximumf (memref.load x j)))
  (each [j 0 end]
    (memref.store (math.exp (arith.subf (memref.load x j) largest)) x j))
  (def sum (total [j 0 end] 0.0 arith.addf (memref.load x j)))
  (each [j 0 end]
    (memref.store (arith.divf (memref.load x j) sum) x j)))

(defn attention [(: q matrix) (: k matrix) (: v matrix) (: weights memref<4xf32>) (: out matrix)] -> []
  (each [i 0 (: positions index)]
    (def end (arith.addi i 1))
    (score q k weights i end)
    (softmax-in-place weights end)
    (each [d 0 (: size index)]
      (memref.store
        (total [j 0 end] 0.0 arith.addf (arith.mulf (memref.load weights j) (memref.load v j d)))
        out i d))))

(defn real [i]
  (arith.sitofp {:result f32} (arith.index_cast {:result i32} i)))

; m[i, d] = sin(scale · i + d)
(defn waves [scale]
  (let [m (memref.alloc {:result matrix})]
    (each [i 0 (: positions index)]
      (each [d 0 (: size index)]
        (def phase (arith.addf (arith.mulf (real i) scale) (real d)))
        (memref.store (math.sin phase) m i d)))
    m))

(defn main []
  (def out (memref.alloc {:result matrix}))
  (def weights (memref.alloc {:result memref<4xf32>}))
  (attention (waves 2.0) (waves 3.0) (waves 0.7) weights out)
  (for [i (range positions)]
    (println "%d: %6.3f %6.3f %6.3f %6.3f" i
             (memref.load out i 0) (memref.load out i 1) (memref.load out i 2) (memref.load out i 3)))
  (println "weights of the last position sum to %.3f"
           (total [j 0 (: positions index)] 0.0 arith.addf (memref.load weights j))))
