; Tensors: values without an address, which bufferization gives memory later.
;
;   lispgpt run examples/tour/10-tensors.lisp
;   lispgpt compile examples/tour/10-tensors.lisp --emit mlir        shows the ops that this file spells
;
; prints: weighted sums: 9.0 12.0 15.0
; prints: the same, by the library: 9.0 12.0 15.0
; prints: 1.0 of 1.0 in all

(require-dialect arith linalg tensor)

; [2 3] and [2] -> [3], with the maps of every operand written out
(defn weighted-sums [(: rows tensor<2x3xf32>) (: weights tensor<2xf32>)] -> tensor<3xf32>
  (def empty (tensor.empty {:result tensor<3xf32>}))
  (def zero (linalg.fill {:ins 1 :outs 1 :result tensor<3xf32>} (: 0.0 f32) empty))
  (linalg.generic {:ins 2 :outs 1 :result tensor<3xf32>
                   :indexing_maps [affine_map<(i, j) -> (i, j)> affine_map<(i, j) -> (i)> affine_map<(i, j) -> (j)>]
                   :iterator_types ["reduction" "parallel"]}
    rows weights zero
    (region
      (block [(: row f32) (: weight f32) (: sum f32)]
        (linalg.yield (arith.addf sum (arith.mulf row weight)))))))

; The language's own functions on tensors make the same ops: `*` and `+` work element by element, `contract` sums
; products over the indices that its result does not name.
(defn weighted-sums-again [(: rows tensor<2x3xf32>) (: weights tensor<2xf32>)] -> tensor<3xf32>
  (contract [j] rows [i j] weights [i]))

(defn print-all [text x]
  (println text (tensor.extract x 0) (tensor.extract x 1) (tensor.extract x 2)))

(defn main []
  (def rows (: dense<[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]> tensor<2x3xf32>))
  (def weights (: dense<[1.0, 2.0]> tensor<2xf32>))
  (print-all "weighted sums: %.1f %.1f %.1f" (weighted-sums rows weights))
  (print-all "the same, by the library: %.1f %.1f %.1f" (weighted-sums-again rows weights))
  (def scores (linalg.softmax {:dimension 1 :result tensor<2x3xf32>} rows (tensor.empty {:result tensor<2x3xf32>})))
  (def total (sum scores))
  (println "%.1f of 1.0 in all" (tensor.extract total 0)))
