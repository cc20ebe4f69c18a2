; Vectors: several numbers in one register.
;
;   lispgpt run examples/tour/08-vectors.lisp
;
; prints: dot product of 16 numbers: 1240.0
; prints: largest: 15.0
; prints: shuffled: 3.0 2.0 1.0 0.0

(require-dialect arith memref scf vector)

(defn numbers []
  (let [m (memref.alloca {:alignment 32 :result memref<16xf32>})]
    (scf.for (: 0 index) (: 16 index) (: 1 index)
      (region
        (block [(: i index)]
          (def integer (arith.index_cast {:result i32} i))
          (memref.store (arith.sitofp {:result f32} integer) m i))))
    m))

; Eight products at a time, summed across the lanes at the end.
(defn dot [(: x memref<16xf32>) (: y memref<16xf32>)] -> f32
  (def sums
    (scf.for {:result vector<8xf32>} (: 0 index) (: 16 index) (: 8 index) (: dense<0.0> vector<8xf32>)
      (region
        (block [(: i index) (: sum vector<8xf32>)]
          (def a (vector.load {:result vector<8xf32>} x i))
          (def b (vector.load {:result vector<8xf32>} y i))
          (scf.yield (vector.fma a b sum))))))
  (vector.reduction {:kind "#vector.kind<add>" :result f32} sums))

(defn main []
  (def x (numbers))
  (println "dot product of 16 numbers: %.1f" (dot x x))
  (def high (vector.load {:result vector<8xf32>} x 8))
  (println "largest: %.1f" (vector.reduction {:kind "#vector.kind<maximumf>" :result f32} high))
  (def low (vector.load {:result vector<4xf32>} x 0))
  (def back (vector.shuffle {:mask array<i64: 3, 2, 1, 0> :result vector<4xf32>} low low))
  (println "shuffled: %.1f %.1f %.1f %.1f"
           (vector.extract {:static_position array<i64: 0> :result f32} back)
           (vector.extract {:static_position array<i64: 1> :result f32} back)
           (vector.extract {:static_position array<i64: 2> :result f32} back)
           (vector.extract {:static_position array<i64: 3> :result f32} back)))
