; Linear algebra on memrefs: a named op, and a generic one.
;
;   lispgpt run examples/tour/09-linalg.lisp
;
; prints: 1 2     1 1     3 3
; prints: 3 4  *  1 1  =  7 7
; prints: doubled and transposed: 6 14 6 14

(require-dialect arith linalg memref scf)

(defn matrix [a b c d]
  (let [m (memref.alloc {:result memref<2x2xf32>})]
    (memref.store (: a f32) m 0 0)
    (memref.store (: b f32) m 0 1)
    (memref.store (: c f32) m 1 0)
    (memref.store (: d f32) m 1 1)
    m))

(defn main []
  (def a (matrix 1.0 2.0 3.0 4.0))
  (def b (matrix 1.0 1.0 1.0 1.0))
  (def c (memref.alloc {:result memref<2x2xf32>}))
  ; A named op knows its loops and its body; `ins` and `outs` say how many operands are read and written.
  (linalg.fill {:ins 1 :outs 1} (: 0.0 f32) c)
  (linalg.matmul {:ins 2 :outs 1} a b c)
  (for [i [0 1]]
    (print "%.0f %.0f" (memref.load a i 0) (memref.load a i 1))
    (print (if (= i 0) "     " "  *  "))
    (print "%.0f %.0f" (memref.load b i 0) (memref.load b i 1))
    (print (if (= i 0) "     " "  =  "))
    (println "%.0f %.0f" (memref.load c i 0) (memref.load c i 1)))
  ; A generic op says everything: for all (i, j), d[j, i] = c[i, j] + c[i, j].
  (def d (memref.alloc {:result memref<2x2xf32>}))
  (linalg.generic {:ins 1 :outs 1
                   :indexing_maps [affine_map<(i, j) -> (i, j)> affine_map<(i, j) -> (j, i)>]
                   :iterator_types ["parallel" "parallel"]}
    c d
    (region
      (block [(: value f32) (: old f32)]
        (linalg.yield (arith.addf value value)))))
  (println "doubled and transposed: %.0f %.0f %.0f %.0f"
           (memref.load d 0 0) (memref.load d 0 1) (memref.load d 1 0) (memref.load d 1 1)))
