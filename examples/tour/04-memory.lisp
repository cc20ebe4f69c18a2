; Memory: memrefs are arrays with a shape and a layout.
;
;   lispgpt run examples/tour/04-memory.lisp
;
; prints: row 0: 0 1 2 3
; prints: row 1: 10 11 12 13
; prints: row 2: 20 21 22 23
; prints: column 2: 2 12 22

(require-dialect arith memref scf)

; 3 rows of 4, element [i j] = 10 i + j
(defn fill [(: m memref<3x4xi64>)] -> []
  (scf.for (: 0 index) (: 3 index) (: 1 index)
    (region
      (block [(: i index)]
        (scf.for (: 0 index) (: 4 index) (: 1 index)
          (region
            (block [(: j index)]
              (def value (arith.addi (arith.muli i 10) j))
              (memref.store (arith.index_cast {:result i64} value) m i j))))))))

(defn main []
  (def m (memref.alloc {:result memref<3x4xi64>}))
  (fill m)
  (for [i (range 3)]
    (println "row %d: %ld %ld %ld %ld" i
             (memref.load m i 0) (memref.load m i 1) (memref.load m i 2) (memref.load m i 3)))
  ; A subview looks at a part of the same memory: from [0 2], 3 rows and 1 column, every element.
  (def column
    (memref.subview {:static_offsets array<i64: 0, 2> :static_sizes array<i64: 3, 1> :static_strides array<i64: 1, 1>
                     :result memref<3xi64, strided<[4], offset: 2>>}
      m))
  (println "column 2: %ld %ld %ld" (memref.load column 0) (memref.load column 1) (memref.load column 2))
  (memref.dealloc m))
